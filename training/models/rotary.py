"""Rotary embeddings that stay in fp32, and verification of the rotary base of a model.

In bf16, positions above 256 are not distinct, so a cast of the inverse frequencies degrades long
traces. Some configuration classes store a base that the model ignores. Neither is visible in early
loss curves, so both are excluded when a model is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

_RELATIVE_TOLERANCE = 1e-4


class RotaryPhases(nn.Module):
    """Drop-in replacement for the rotary module of a transformers model, unaffected by casts.

    The frequencies are a plain attribute, not a buffer, so that `model.to(torch.bfloat16)` does
    not cast them and DDP does not broadcast them at every step.
    """

    def __init__(self, inv_freq: Tensor) -> None:
        """Store `inv_freq`, fp32 of shape (head_dim / 2,)."""
        super().__init__()
        self.inv_freq = inv_freq.detach().clone()  # an nn.Buffer would register itself

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPhases:
        # Called by `.to()`, `.cuda()` and `.half()`: apply the device, ignore the dtype.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.inv_freq = self.inv_freq.to(fn(self.inv_freq).device)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of position * frequency, computed in fp32.

        Args:
            x: Hidden states, for the dtype of the result.
            position_ids: Shape (B, T).

        Returns:
            Two tensors of shape (B, T, head_dim).
        """
        phases_BTF = position_ids[..., None].float() * self.inv_freq
        phases_BTD = torch.cat((phases_BTF, phases_BTF), dim=-1)
        return phases_BTD.cos().to(x.dtype), phases_BTD.sin().to(x.dtype)


def find_rotary(model: nn.Module) -> tuple[nn.Module, str]:
    """Return the parent and the attribute name of the rotary module of `model`.

    Raises:
        ValueError: The model has none, or several.
    """
    found: list[tuple[nn.Module, str]] = []
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(getattr(child, "inv_freq", None), Tensor):
                found.append((parent, name))
    if len(found) != 1:
        raise ValueError(f"rotary modules: got {len(found)}, allowed is exactly one")
    return found[0]


def pin_rotary(model: nn.Module) -> None:
    """Replace the rotary module of `model` by `RotaryPhases` with the same frequencies."""
    parent, name = find_rotary(model)
    setattr(parent, name, RotaryPhases(getattr(parent, name).inv_freq))


def _inv_freq(model: nn.Module) -> Tensor:
    parent, name = find_rotary(model)
    inv_freq: Tensor = getattr(parent, name).inv_freq
    return inv_freq


def is_same_base(base: float, other: float) -> bool:
    """Return whether two rotary bases are equal up to the rounding of fp32 frequencies."""
    return math.isclose(base, other, rel_tol=_RELATIVE_TOLERANCE)


def effective_rope_base(model: nn.Module) -> float:
    """Compute the base from the frequencies: `inv_freq[i] = base ** (-2 i / dim)`."""
    inv_freq = _inv_freq(model)
    dim = 2 * len(inv_freq)
    return float(inv_freq[-1].double() ** (-dim / (dim - 2)))


def check_rotary(model: nn.Module, *, rope_theta: float, rotary_dims: int) -> None:
    """Check base, rotated dimensions and dtype of the frequencies that `model` uses.

    Raises:
        ValueError: One of the three differs; the message has both values.
    """
    inv_freq = _inv_freq(model)
    if inv_freq.dtype != torch.float32:
        raise ValueError(f"rotary frequencies: got {inv_freq.dtype}, allowed is torch.float32")
    if 2 * len(inv_freq) != rotary_dims:
        raise ValueError(
            f"rotated dimensions: the model uses {2 * len(inv_freq)}, the config says {rotary_dims}"
        )
    base = effective_rope_base(model)
    if not is_same_base(base, rope_theta):
        raise ValueError(f"rotary base: the model uses {base:g}, the config says {rope_theta:g}")
