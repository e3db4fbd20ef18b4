"""First activation of a transformer that exceeds the error bound of the theorems' proofs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.conversion.bounds import allowed_error
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import Conversion
from compile_tm.runtime.transformer import Part, Snapshot

Streams = Sequence[npt.NDArray[np.floating]]
"""Hardmax streams (n, d): before layer 1, then after the heads and the MLP of each layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A wrong token, and the first activation that exceeds its error bound."""

    token_position: int
    """Position whose predicted next token is wrong."""
    layer: int
    """Layer of the hardmax transformer, from 1."""
    part: Part
    """Sublayer after which the activation is read."""
    head: int | None
    """Head that writes the activation, from 0; None if no head does."""
    head_name: str
    """Name of that head."""
    wire: str
    """Register bit or flag."""
    position: int
    """Position of the activation."""
    value: float
    """Activation of the converted transformer."""
    expected: float
    """Activation of the hardmax transformer."""
    allowed: float
    """Maximum difference allowed by the proof."""

    def __str__(self) -> str:
        head = "" if self.head is None else f", head {self.head} ({self.head_name})"
        return (
            f"layer {self.layer} after the {self.part.value}{head}, position {self.position}: "
            f"{self.wire} is {self.value:.4g}, expected {self.expected:g} +- {self.allowed:.3g}; "
            f"first wrong token after position {self.token_position}"
        )


def first_failure(
    seen: Iterable[Snapshot],
    reference: Streams,
    *,
    blueprint: Blueprint,
    conversion: Conversion | None,
    token_position: int,
) -> Failure | None:
    """Return the first activation, in the order of layers, that exceeds its error bound.

    Args:
        seen: Residual streams of one sequence, in the order of layers.
        reference: Residual streams of the hardmax transformer.
        blueprint: Hardmax transformer.
        conversion: Conversion to softmax; None for the hardmax transformer.
        token_position: Position of the wrong token; later positions are ignored.

    Returns:
        None if all activations are within their bounds.
    """
    for snapshot in seen:
        allowed = _allowed(blueprint, conversion, snapshot)
        errors = distances(snapshot, reference)[: token_position + 1]
        places = np.argwhere(~(errors <= allowed))
        if len(places):
            position, coordinate = places[0].tolist()
            writer = None
            if snapshot.part in (Part.HEADS, Part.DENOISING):
                writer = blueprint.writer(snapshot.layer, coordinate)
            return Failure(
                token_position=token_position,
                layer=snapshot.layer,
                part=snapshot.part,
                head=writer and writer[0],
                head_name=writer[1] if writer else "",
                wire=blueprint.wire_at(coordinate),
                position=position,
                value=float(snapshot.stream[0, position, coordinate]),
                expected=float(_expected(snapshot, reference)[position, coordinate]),
                allowed=allowed,
            )
    return None


def distances(snapshot: Snapshot, reference: Streams) -> npt.NDArray[np.float64]:
    """Return the absolute differences (n, d) from the hardmax stream after the same sublayer."""
    errors: npt.NDArray[np.float64] = np.abs(
        snapshot.stream[0].double().numpy() - _expected(snapshot, reference)
    )
    return errors


def _expected(snapshot: Snapshot, reference: Streams) -> npt.NDArray[np.floating]:
    return reference[2 * snapshot.layer - (snapshot.part in (Part.HEADS, Part.DENOISING))]


def _allowed(blueprint: Blueprint, conversion: Conversion | None, snapshot: Snapshot) -> float:
    """Return the error bound: 1/4 before denoising, 0 after it, otherwise `allowed_error`."""
    if conversion is None:
        return 0.0
    if snapshot.layer in conversion.denoised:
        return 1 / 4 if snapshot.part is Part.HEADS else 0.0
    return allowed_error(blueprint.sizes)
