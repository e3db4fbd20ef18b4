"""Named precision policies of runs, recorded in every checkpoint, export and result.

`bf16` is mixed precision as in the paper: fp32 master weights and optimizer state, matrix products
and attention in bf16 through autocast. `fp32` is the paper's control run: fp32 everywhere, with
TF32 disabled. Softmax and rotary embeddings are fp32 in both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

PrecisionName = Literal["bf16", "fp32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionPolicy:
    """Number formats of a model's computations."""

    name: PrecisionName | Literal["unknown"]
    """Name on the command line; `unknown` for external models."""
    weights: str
    """Stored weights; in training also gradients and optimizer state."""
    activations: str
    """Inputs and outputs of matrix products and attention."""
    softmax: str
    """Accumulation of attention weights, and the loss."""
    rotary: str
    """Rotary embeddings: position times frequency."""
    cache: str
    """KV cache."""

    def as_dict(self) -> dict[str, str]:
        """Return the policy as JSON values."""
        return asdict(self)


FORMAT_BYTES = {"fp32": 4, "bf16": 2}
"""Bytes of a number, by the name of its format."""
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
"""Policy of a model behind a server and of imported predictions."""


def get_precision(name: str) -> PrecisionPolicy:
    """Return the policy called `name`.

    Raises:
        ValueError: Unknown name; the message lists the names.
    """
    try:
        return PRECISIONS[name]
    except KeyError:
        raise ValueError(f"precision: got {name!r}, allowed are {', '.join(PRECISIONS)}") from None
