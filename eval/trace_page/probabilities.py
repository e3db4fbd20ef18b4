"""Probabilities of a model's tokens, by forward passes over the tokens that it generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from eval.engines.contract import Request
from eval.engines.puzzle_run import join
from eval.inspect.certificates import sequences_of
from eval.inspect.replay import logits_after
from eval.network.types import TokenNetwork
from solver.vocabulary import Tokens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probabilities:
    """Probabilities of n generated tokens, all segments in order, and of the best other ones."""

    token: npt.NDArray[np.float32]
    """(n,) probability of the generated token."""
    other: Tokens
    """(n,) most likely id apart from it."""
    other_probability: npt.NDArray[np.float32]
    """(n,) probability of that id."""


def read_probabilities(
    network: TokenNetwork, request: Request, segments: Sequence[Tokens], *, max_tokens: int
) -> Probabilities:
    """Run a model over its own tokens.

    Args:
        network: The model.
        request: The puzzle.
        segments: Generated ids of each segment.
        max_tokens: Number of leading tokens to return.
    """
    parts: list[tuple[npt.NDArray[np.float32], Tokens, npt.NDArray[np.float32]]] = []
    num_left = max_tokens
    for prompt, segment in sequences_of(request, segments):
        generated = segment[:num_left]
        num_left -= len(generated)
        start = 0
        if len(generated):
            ids = join(prompt, generated)[:-1]
            for logits in logits_after(network, ids, first=len(prompt) - 1):
                parts.append(_probabilities(logits, generated[start : start + len(logits)]))
                start += len(logits)
    token, other, other_probability = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Probabilities(
        token=token, other=cast("Tokens", other), other_probability=other_probability
    )


def _probabilities(
    logits: npt.NDArray[np.float32], tokens: Tokens
) -> tuple[npt.NDArray[np.float32], Tokens, npt.NDArray[np.float32]]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(tokens))
    chosen = shares[rows, tokens]
    shares[rows, tokens] = -1
    other = shares.argmax(axis=1)
    return chosen, other.astype(tokens.dtype), shares[rows, other]
