"""Where a transformer goes wrong: the first activation that the theorems' proofs do not allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.conversion.bounds import allowed_error
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import Conversion
from compile_tm.runtime.softmax import Part, Snapshot

Streams = Sequence[npt.NDArray[np.floating]]
"""(n, d) each: of the hardmax transformer before layer 1, then after the heads and the MLP of each
layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A wrong token, and the first activation that the theorems' proofs do not allow."""

    sequence: int
    token_position: int
    """After which position the token is wrong."""
    layer: int
    """Of the hardmax transformer, from 1."""
    part: Part
    head: int | None
    """Head of the layer that writes the activation, from 0; None if none does."""
    head_name: str
    wire: str
    """Register bit or flag."""
    position: int
    value: float
    expected: float
    allowed: float
    """Greatest difference between the two that the proof allows there."""

    def __str__(self) -> str:
        head = "" if self.head is None else f", head {self.head} ({self.head_name})"
        return (
            f"layer {self.layer} after the {self.part.value}{head}, position {self.position}: "
            f"{self.wire} holds {self.value:.4g}, must be {self.expected:g} within "
            f"{self.allowed:.3g}; first wrong token after position {self.token_position}"
        )


def first_failure(
    seen: Iterable[Snapshot],
    reference: Streams,
    *,
    blueprint: Blueprint,
    conversion: Conversion | None,
    sequence: int,
    token_position: int,
) -> Failure | None:
    """The first forbidden activation, layer by layer, of a transformer that says a wrong token.

    Args:
        seen: Its streams, of one sequence, in the order of layers.
        reference: Those of the hardmax transformer.
        blueprint: The hardmax transformer.
        conversion: How it was converted; None if it was not.
        sequence: Number of the sequence.
        token_position: Position after which the token is wrong. What follows has no part in it.

    Returns:
        None if all activations are allowed.
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
                sequence=sequence,
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
    """(n, d) distances to what the hardmax transformer has after the same part."""
    errors: npt.NDArray[np.float64] = np.abs(
        snapshot.stream[0].double().numpy() - _expected(snapshot, reference)
    )
    return errors


def _expected(snapshot: Snapshot, reference: Streams) -> npt.NDArray[np.floating]:
    return reference[2 * snapshot.layer - (snapshot.part in (Part.HEADS, Part.DENOISING))]


def _allowed(blueprint: Blueprint, conversion: Conversion | None, snapshot: Snapshot) -> float:
    """What the proofs allow: 1/4 before denoising, nothing after it, else `allowed_error`."""
    if conversion is None:
        return 0.0
    if snapshot.layer in conversion.denoised:
        return 1 / 4 if snapshot.part is Part.HEADS else 0.0
    return allowed_error(blueprint.sizes)
