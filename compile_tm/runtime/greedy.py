"""Embedding and greedy decoding with a KV cache, for runtimes that calculate with tensors.

All sequences of a batch stand at the same position, so that there is no padding: rows differ in how
many of their tokens are given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


class Cache(Protocol):
    """Keys and values of earlier positions."""

    length: int
    """How many positions."""

    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the batch but these."""
        ...


_Cache = TypeVar("_Cache", bound=Cache)


class GreedyTransformer(nn.Module, ABC, Generic[_Cache]):
    """A transformer with binary positional embeddings that can go on from a cache.

    Called with tokens (B, T) and a cache, it gives scores (B, T, V) after each of them.
    """

    embedding: Tensor
    position: tuple[int, ...]
    """Coordinates that get bin_r(i)."""

    @property
    def max_positions(self) -> int:
        """Positions that the positional embedding can tell apart."""
        return 1 << len(self.position)

    @property
    def device(self) -> torch.device:
        """Where it calculates."""
        return self.embedding.device

    @abstractmethod
    def new_cache(self, batch: int) -> _Cache:
        """An empty cache for so many sequences."""

    def embed(self, tokens: Tensor, start: int) -> Tensor:
        """The stream (B, T, d) at the bottom, of tokens (B, T) at positions `start` on."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        shifts = torch.arange(len(self.position), device=tokens.device)
        bits = (positions[:, None] >> shifts & 1) * 2 - 1
        x = self.embedding[tokens]
        x[..., list(self.position)] += bits.to(x.dtype)
        return x

    def predict(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """The token (n,) that the transformer says after each of the prefixes of ids (n,)."""
        tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(self.device)
        best: npt.NDArray[np.int32] = self(tokens)[0].argmax(dim=-1).cpu().numpy().astype(np.int32)
        return best

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[npt.NDArray[np.int32]]:
        """Continue each prompt to a stop token, or to the last position.

        Args:
            prompts: Ids, of any lengths.
            stop: Ids that end a sequence.

        Returns:
            The sequences, with their prompts and their stop tokens.

        Raises:
            ValueError: a prompt is empty, or has more tokens than there are positions.
        """
        if any(not 1 <= len(prompt) <= self.max_positions for prompt in prompts):
            raise ValueError(f"prompts: allowed are 1 to {self.max_positions} tokens")
        done = [np.asarray(prompt, dtype=np.int32) for prompt in prompts]
        rows = list(range(len(prompts)))
        ids = [prompt.tolist() for prompt in prompts]
        cache = self.new_cache(len(rows))
        fed = min(map(len, prompts), default=0)
        tokens = torch.tensor([row[:fed] for row in ids], device=self.device)
        while rows:
            best = self(tokens, cache)[:, -1].argmax(dim=-1).tolist()
            ended = []
            for place, row in enumerate(rows):
                if len(ids[row]) == cache.length:
                    ids[row].append(best[place])
                    if best[place] in stop or cache.length == self.max_positions:
                        ended.append(place)
            for place in ended:
                done[rows[place]] = np.array(ids[rows[place]], dtype=np.int32)
            if ended:
                kept = [place for place in range(len(rows)) if place not in set(ended)]
                rows = [rows[place] for place in kept]
                cache.keep(torch.tensor(kept, dtype=torch.long, device=self.device))
            tokens = torch.tensor([[ids[row][cache.length]] for row in rows], device=self.device)
        return done
