"""Named precision policies: one per run, recorded in every checkpoint, export and result.

`bf16` is mixed precision as the paper trains: fp32 master weights and optimizer state, matrix
products and attention in bf16 through autocast. `fp32` is the paper's control run: nothing below
fp32 anywhere, TF32 off. Softmax and rotary phases are fp32 in both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

PrecisionName = Literal["bf16", "fp32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionPolicy:
    """Number formats that a model computes in."""

    name: PrecisionName | Literal["unknown"]
    """Name on the command line; `unknown` for models that others compute."""
    weights: str
    """Weights as stored; in training also gradients and optimizer state."""
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
UNKNOWN_PRECISION = PrecisionPolicy(
    name="unknown",
    weights="unknown",
    activations="unknown",
    softmax="unknown",
    rotary="unknown",
    cache="unknown",
)
"""Of a model behind a server, or of imported predictions."""


def get_precision(name: str) -> PrecisionPolicy:
    """Return the policy called `name`.

    Raises:
        ValueError: no such policy; the message lists the names.
    """
    try:
        return PRECISIONS[name]
    except KeyError:
        raise ValueError(f"precision: got {name!r}, allowed are {', '.join(PRECISIONS)}") from None
