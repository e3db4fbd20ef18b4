"""Greedy decoding with a KV cache, for runtimes that calculate with tensors.

All sequences of a batch stand at the same position, so that there is no padding: rows differ in how
many of their tokens are given.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Cache(Protocol):
    """Keys and values of earlier positions."""

    length: int
    """How many positions."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the batch but these."""
        ...


_Cache = TypeVar("_Cache", bound=Cache)


class CachedModel(Protocol[_Cache]):
    """A transformer that can go on from a cache."""

    @property
    def max_positions(self) -> int:
        """Positions that it can tell apart."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it calculates."""
        ...

    def new_cache(self, batch: int) -> _Cache:
        """An empty cache for so many sequences."""
        ...

    def __call__(self, tokens: Tensor, cache: _Cache) -> Tensor:
        """Scores (B, T, V) after each of the tokens (B, T)."""
        ...


@torch.inference_mode()
def generate(
    model: CachedModel[_Cache],
    prompts: Sequence[npt.NDArray[np.integer]],
    *,
    stop: Collection[int],
) -> list[npt.NDArray[np.int32]]:
    """Continue each prompt to a stop token, or to the last position.

    Args:
        model: The transformer.
        prompts: Ids, of any lengths.
        stop: Ids that end a sequence.

    Returns:
        The sequences, with their prompts and their stop tokens.

    Raises:
        ValueError: a prompt is empty, or has more tokens than there are positions.
    """
    if any(not 1 <= len(prompt) <= model.max_positions for prompt in prompts):
        raise ValueError(f"prompts: allowed are 1 to {model.max_positions} tokens")
    done = [np.asarray(prompt, dtype=np.int32) for prompt in prompts]
    rows = list(range(len(prompts)))
    ids = [prompt.tolist() for prompt in prompts]
    cache = model.new_cache(len(rows))
    fed = min(map(len, prompts), default=0)
    tokens = torch.tensor([row[:fed] for row in ids], device=model.device)
    while rows:
        best = model(tokens, cache)[:, -1].argmax(dim=-1).tolist()
        ended = []
        for place, row in enumerate(rows):
            if len(ids[row]) == cache.length:
                ids[row].append(best[place])
                if best[place] in stop or cache.length == model.max_positions:
                    ended.append(place)
        for place in ended:
            done[rows[place]] = np.array(ids[rows[place]], dtype=np.int32)
        if ended:
            kept = [place for place in range(len(rows)) if place not in set(ended)]
            rows = [rows[place] for place in kept]
            cache.keep(torch.tensor(kept, dtype=torch.long, device=model.device))
        tokens = torch.tensor([[ids[row][cache.length]] for row in rows], device=model.device)
    return done
