"""Named precision policies: one per run, recorded in every checkpoint, export and result.

`bf16` is mixed precision as the paper trains: fp32 master weights and optimiser state, matrix
products and attention in bf16 through autocast. `fp32` is the paper's control run: nothing below
fp32 anywhere, TF32 off. Softmax and rotary phases are fp32 in both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import torch

PrecisionName = Literal["bf16", "fp32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionPolicy:
    """Number formats of a training run."""

    name: PrecisionName
    """Name on the command line."""
    weights: str
    """Master weights, gradients and optimiser state."""
    activations: str
    """Inputs and outputs of matrix products and of attention."""
    softmax: str
    """Attention weights while they are accumulated, and the loss."""
    rotary: str
    """Rotary phases: position times frequency."""
    cache: str
    """Keys and values."""

    def as_dict(self) -> dict[str, str]:
        """Plain form for JSON."""
        return asdict(self)


PRECISIONS: dict[str, PrecisionPolicy] = {
    "bf16": PrecisionPolicy(
        name="bf16",
        weights="fp32",
        activations="bf16",
        softmax="fp32",
        rotary="fp32",
        cache="bf16",
    ),
    "fp32": PrecisionPolicy(
        name="fp32",
        weights="fp32",
        activations="fp32",
        softmax="fp32",
        rotary="fp32",
        cache="fp32",
    ),
}


def get_precision(name: str) -> PrecisionPolicy:
    """Return the policy called `name`.

    Raises:
        ValueError: no such policy; the message lists the names.
    """
    try:
        return PRECISIONS[name]
    except KeyError:
        raise ValueError(f"precision: got {name!r}, allowed are {', '.join(PRECISIONS)}") from None


def apply_precision(policy: PrecisionPolicy, *, device: torch.device) -> Literal["bf16", "no"]:
    """Prepare torch for a policy; call it once, before the model runs.

    TF32 is turned off under every policy: what is called fp32 is fp32.

    Returns:
        The value for accelerate's `mixed_precision`.

    Raises:
        ValueError: the device cannot compute in the policy's types.
    """
    if policy.activations == "bf16" and not _computes_bf16(device):
        raise ValueError(f"precision bf16: got device {device}, which lacks it; allowed is fp32")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    return "bf16" if policy.activations == "bf16" else "no"


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu"
