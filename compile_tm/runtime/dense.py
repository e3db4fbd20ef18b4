"""A program as a torch module: the paper's definition of a hardmax transformer, with a KV cache.

Shapes: B sequences, T positions, H heads, V tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.program import Program, Sizes
from compile_tm.runtime.greedy import GreedyTransformer

_MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b", "W_2", "embedding", "unembedding")


class KvCache:
    """Keys (L, B, H, T, d_k) and values (L, B, H, T, d_v) of the positions so far."""

    def __init__(self, sizes: Sizes, *, batch: int, device: torch.device) -> None:
        self.length = 0
        shape = (sizes.L, batch, sizes.H, 64)
        self.keys = torch.zeros(*shape, sizes.d_k, device=device)
        self.values = torch.zeros(*shape, sizes.d_v, device=device)

    def reserve(self, length: int) -> None:
        """Make room for `length` positions."""
        while length > self.keys.shape[3]:
            self.keys = torch.cat([self.keys, torch.zeros_like(self.keys)], dim=3)
            self.values = torch.cat([self.values, torch.zeros_like(self.values)], dim=3)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the batch but these."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]


class HardmaxTransformer(GreedyTransformer[KvCache]):
    """A transformer decoder with averaging hardmax attention and binary positional embeddings."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    W_1: Tensor
    b: Tensor
    W_2: Tensor
    unembedding: Tensor

    def __init__(self, weights: DenseWeights, *, position: Sequence[int]) -> None:
        super().__init__()
        self.sizes = weights.sizes
        self.position = tuple(position)
        for name in _MATRICES:
            values = torch.from_numpy(getattr(weights, name)).to(torch.float32)
            self.register_buffer(name, values)

    @classmethod
    def from_program(cls, program: Program) -> HardmaxTransformer:
        """The module of a program."""
        return cls(dense_weights(program), position=program.position.coordinates)

    def new_cache(self, batch: int) -> KvCache:
        """An empty cache for so many sequences."""
        return KvCache(self.sizes, batch=batch, device=self.device)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: KvCache | None = None,
        *,
        layers_out: list[Tensor] | None = None,
    ) -> Tensor:
        """Scores of all tokens at all given positions.

        Args:
            tokens: Ids (B, T).
            cache: Keys and values of earlier positions; gets those of the given ones.
            layers_out: Gets the residual stream (B, T, d) before layer 1, and then, for each layer,
                after its heads and after its MLP.

        Returns:
            (B, T, V).

        Raises:
            ValueError: there are more positions than the positional embedding can tell apart.
        """
        cache = cache or self.new_cache(len(tokens))
        start, stop = cache.length, cache.length + tokens.shape[1]
        if stop > self.max_positions:
            raise ValueError(
                f"positions: got {stop}, allowed are {self.max_positions}; compile with more bits"
            )
        cache.reserve(stop)
        x = self.embed(tokens, start)
        seen = [x]
        for layer in range(self.sizes.L):
            x = x + self._attend(x, layer, cache, start)
            seen.append(x)
            hidden = torch.relu(x @ self.W_1[layer].T + self.b[layer])
            x = x + hidden @ self.W_2[layer].T
            seen.append(x)
        cache.length = stop
        if layers_out is not None:
            layers_out.extend(seen)
        return x @ self.unembedding.T

    def _project(self, x: Tensor, layer: int, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (B, H, T, d_k) and values (B, H, T, d_v) of positions `start` on."""
        del start  # Positions are in the stream.
        q, k, v = (
            torch.einsum("btd,hkd->bhtk", x, weight[layer])
            for weight in (self.W_Q, self.W_K, self.W_V)
        )
        return q, k, v

    def _attend(self, x: Tensor, layer: int, cache: KvCache, start: int) -> Tensor:
        """Sum of the heads' outputs (B, T, d); fills the cache."""
        stop = start + x.shape[1]
        q, k, v = self._project(x, layer, start)
        cache.keys[layer, :, :, start:stop] = k
        cache.values[layer, :, :, start:stop] = v
        # Scores are small integers, exact in fp32; 1/sqrt(d_k) does not change their maximum.
        scores = q @ cache.keys[layer, :, :, :stop].transpose(-1, -2)
        if x.shape[1] > 1:
            own = torch.arange(start, stop, device=x.device)
            later = torch.arange(stop, device=x.device) > own[:, None]
            scores = scores.masked_fill(later, -torch.inf)
        best = (scores == scores.amax(dim=-1, keepdim=True)).to(x.dtype)
        # Sums of small integers are exact, as 1/3 + 1/3 + 1/3 is not.
        sums = best @ cache.values[layer, :, :, :stop]
        heads = sums / best.sum(dim=-1, keepdim=True)
        return torch.einsum("bhtv,hdv->btd", heads, self.W_O[layer])
