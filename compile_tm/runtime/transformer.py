"""The paper's transformer in torch: hardmax or softmax, rounding, both position encodings.

Every step is that of Definition "setting": with hardmax attention it computes the program itself,
with a `Conversion` the softmax transformer of that conversion, and with `RoundingPoints` every
activation is rounded where the definition rounds it. Values that no format is given for have the
module's dtype.

Only the weights in use are multiplied; they are those that `conversion.weights` writes out. Heads
of a program select coordinates, so their projections are index lists. Rounding is idempotent, so
coordinates that nothing is added to are not rounded again. The heads of a position stack
(`conversion.rope`) are matrices with rotary embeddings.

Shapes: B sequences, T positions, V tokens, d coordinates of the residual stream.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from compile_tm.conversion.rope.stack import RopeWeights, dense_layer
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.formats.floats import FloatFormat
from compile_tm.program.dense import DenseWeights
from compile_tm.program.program import Layer, Program
from compile_tm.runtime.modules import Denoise, Heads, KvCache, Mlp, RotaryHeads


class Part(Enum):
    """Part of a layer."""

    EMBEDDING = "embedding"
    HEADS = "heads"
    DENOISING = "denoising"
    MLP = "MLP"


class Snapshot(NamedTuple):
    """The residual stream after a part of a layer."""

    layer: int
    """Layer of the hardmax transformer, from 1; 0 for the embedding."""
    part: Part
    stream: Tensor
    """(B, T, d)."""


class TorchTransformer(nn.Module):
    """A transformer decoder with greedy batched generation and a KV cache."""

    embedding: Tensor
    unembedding: Tensor

    def __init__(
        self,
        program: Program,
        conversion: Conversion | None = None,
        *,
        rope: RopeWeights | None = None,
        points: RoundingPoints | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the modules of a program.

        Args:
            program: The program; its layers follow those of the position stack.
            conversion: Scale c and denoised layers, counted with those of the stack; None for
                averaging hardmax attention.
            rope: Stack and program, in place of the positional embedding.
            points: Formats to round to; None rounds nothing.
            dtype: float32 or float64.

        Raises:
            ValueError: the activation format does not contain c or a constant that denoising
                needs.
        """
        super().__init__()
        self.program, self.conversion = program, conversion
        self._points = points or RoundingPoints()
        self._position = program.position.coordinates if rope is None else ()
        if conversion is not None:
            _check_members(conversion, self._points.activations)
        whole: Program | DenseWeights = program if rope is None else rope.weights
        self.sizes = whole.sizes
        # With the column that is always zero.
        embedding = np.pad(whole.embedding, ((0, 0), (0, 1)))
        unembedding = np.pad(whole.unembedding, ((0, 0), (0, 1)))
        self.register_buffer("embedding", torch.from_numpy(embedding).to(dtype))
        self.register_buffer("unembedding", torch.from_numpy(unembedding).to(dtype))
        self._parts = nn.ModuleList()
        self._labels: list[tuple[int, Part]] = []
        num_before = 0 if rope is None else rope.num_stack_layers
        for number in range(1, num_before + 1):
            assert rope is not None
            rotary = None
            if rope.weights.W_O[number - 1].any():
                rotary = RotaryHeads(rope, number, conversion, self._points, dtype)
            self._add_layer(number, rotary, dense_layer(rope.weights, number - 1), dtype)
        for number, layer in enumerate(program.layers, num_before + 1):
            heads = None
            if layer.heads:
                heads = Heads(layer.heads, number, whole.sizes, conversion, self._points)
            self._add_layer(number, heads, layer, dtype)

    @property
    def max_positions(self) -> int:
        """Maximum number of positions."""
        return self.program.max_positions

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: KvCache | None = None,
        *,
        seen: list[Snapshot] | None = None,
    ) -> Tensor:
        """Return the logits (B, T, V) after each token.

        Args:
            tokens: Ids (B, T).
            cache: Keys and values of earlier positions; those of the given ones are appended.
            seen: List that receives the residual stream after every part of every layer.

        Raises:
            ValueError: more positions than `max_positions`.
        """
        start = cache.length if cache else 0
        stop = start + tokens.shape[1]
        if stop > self.max_positions:
            raise ValueError(
                f"positions: got {stop}, allowed are {self.max_positions}; compile with more bits"
            )
        x = self._embed(tokens, start)
        if seen is not None:
            seen.append(Snapshot(0, Part.EMBEDDING, x[..., :-1]))
        for (layer, part), module in zip(self._labels, self._parts, strict=True):
            x = module(x, cache) if part is Part.HEADS else module(x)
            if seen is not None:
                seen.append(Snapshot(layer, part, x[..., :-1]))
        if cache:
            cache.length = stop
        return x @ self.unembedding.T

    def streams(self, ids: npt.NDArray[np.integer]) -> list[npt.NDArray[np.floating]]:
        """Return residual streams (n, d) of a sequence (n,), ordered as `Trace.streams`.

        Before layer 1, then after the heads (and denoising, if any) and the MLP of each layer.
        """
        seen: list[Snapshot] = []
        self(self._batch(ids), seen=seen)
        after = {(layer, part): stream[0].cpu().numpy() for layer, part, stream in seen}
        found = [after[0, Part.EMBEDDING]]
        for layer in range(1, self.sizes.L + 1):
            attended = after.get((layer, Part.HEADS), found[-1])
            found.append(after.get((layer, Part.DENOISING), attended))
            found.append(after.get((layer, Part.MLP), found[-1]))
        return found

    def predict(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Return the greedy next token (n,) after each prefix of a sequence (n,)."""
        best: npt.NDArray[np.int32] = self(self._batch(ids))[0].argmax(dim=-1).cpu().numpy()
        return best.astype(np.int32)

    def _batch(self, ids: npt.NDArray[np.integer]) -> Tensor:
        """A sequence (n,) as a batch (1, n) on the module's device."""
        tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        return tokens[None].to(self.embedding.device)

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[npt.NDArray[np.int32]]:
        """Continue each prompt greedily to a stop token or the last position.

        All rows of the batch are at the same position, so that nothing is padded: rows differ in
        how many of their tokens are given.

        Args:
            prompts: Ids, of any lengths.
            stop: Ids that end a sequence.

        Returns:
            The sequences, prompts and stop tokens included.

        Raises:
            ValueError: a prompt is empty or longer than `max_positions`.
        """
        if any(not 1 <= len(prompt) <= self.max_positions for prompt in prompts):
            raise ValueError(f"prompts: allowed are 1 to {self.max_positions} tokens")
        done = [np.asarray(prompt, dtype=np.int32) for prompt in prompts]
        rows = list(range(len(prompts)))
        ids = [prompt.tolist() for prompt in prompts]
        cache = KvCache()
        device = self.embedding.device
        num_shared = min(map(len, prompts), default=0)
        tokens = torch.tensor([row[:num_shared] for row in ids], device=device)
        while rows:
            best = self(tokens, cache)[:, -1].argmax(dim=-1).tolist()
            ended = []
            for index, row in enumerate(rows):
                if len(ids[row]) == cache.length:
                    ids[row].append(best[index])
                    if best[index] in stop or cache.length == self.max_positions:
                        ended.append(index)
            for index in ended:
                done[rows[index]] = np.array(ids[rows[index]], dtype=np.int32)
            if ended:
                kept = [index for index in range(len(rows)) if index not in set(ended)]
                rows = [rows[index] for index in kept]
                cache.select(torch.tensor(kept, dtype=torch.long, device=device))
            tokens = torch.tensor([[ids[row][cache.length]] for row in rows], device=device)
        return done

    def _embed(self, tokens: Tensor, start: int) -> Tensor:
        """The residual stream before layer 1, with one more column of zeros."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        shifts = torch.arange(len(self._position), device=tokens.device)
        bits = (positions[:, None] >> shifts & 1) * 2 - 1
        x = self.embedding[tokens]
        x[..., list(self._position)] += bits.to(x.dtype)
        return x

    def _add_layer(self, number: int, heads: Heads | None, mlp: Layer, dtype: torch.dtype) -> None:
        parts: list[tuple[Part, nn.Module]] = []
        act = self._points.activations
        if heads is not None:
            parts.append((Part.HEADS, heads))
        if self.conversion is not None and number in self.conversion.denoised:
            parts.append((Part.DENOISING, Denoise(act, dtype)))
        if mlp.num_neurons:
            parts.append((Part.MLP, Mlp(mlp, act, dtype)))
        for part, module in parts:
            self._parts.append(module)
            self._labels.append((number, part))


def _check_members(conversion: Conversion, act: FloatFormat | None) -> None:
    """Refuse activation formats without c or, for denoising, 1/4 and 3/4."""
    needed = [conversion.c, 0.25, 0.75] if conversion.denoised else [conversion.c]
    missing = [f"{value:g}" for value in needed if act and not act.contains(value)]
    if missing:
        raise ValueError(f"activations: got {act}, which does not have {', '.join(missing)}")
