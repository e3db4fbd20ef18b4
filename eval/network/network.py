"""Inference of Llama, Qwen3 and GPT-NeoX weights, for sequences of different lengths at once.

    network = Network(ModelFolder.open(path), precision=get_precision("fp32"), device=device)
    cache = network.new_cache(num_slots=8, capacity=1024)
    logits = network.extend(cache, [Span(slot=3, start=0, tokens=prompt)], is_last_only=True)
    logits = network.step(cache, tokens, positions, slots=slots, bound=bound)

No row is padded, and no row's result depends on another row but for the order of summation that
the matrix library picks for a number of rows. A slot goes on at any position up to its length.

Number formats follow training (`data.model_format.precision`), so that a model is evaluated as it
was trained. Under `bf16` that is autocast, operation by operation: weights are fp32 and rounded to
bf16 for matrix products, whose inputs and outputs, the logits' included, are bf16; the residual
stream, norms and rotary phases are fp32; queries, keys and values are rounded to bf16 after
rotation, which is what the cache holds; softmax accumulates in fp32. Under `fp32` everything is
fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from data.model_format.precision import PrecisionPolicy
from data.model_format.vector_math import settle_vector_math
from eval.network.cache import Attend, CacheShape, PaddedCache, check_spans, span_positions
from eval.network.model_folder import ModelFolder
from eval.network.ragged_cache import RaggedCache
from eval.network.rows import RowPasses
from eval.network.types import DTYPES, SlotCache, Span
from eval.network.weights import Layer, make_weights

_FOREIGN = "a cache of another network"


class Network:
    """A `TokenNetwork` with its weights on a device.

    Attributes:
        folder: where it came from.
        config: its shape.
        precision: formats that it computes in.
        num_ids: width of the logits: the ids of the board and no more, whatever the rows of the
            output matrix.
        max_positions: longest sequence in tokens.
    """

    def __init__(
        self, folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
    ) -> None:
        """Read the weights.

        Raises:
            ValueError: the folder's files changed since it was opened, and are unfit now.
        """
        self.folder, self.config, self.precision = folder, folder.network, precision
        self.device, self.num_ids = device, folder.vocabulary.size
        self.max_positions = folder.max_positions
        self._dtype = DTYPES[precision.activations]
        self._weights = make_weights(
            folder.read_weights(),
            self.config,
            num_ids=self.num_ids,
            device=device,
            dtype=self._dtype,
        )
        self._cos, self._sin = _rotary_phases(folder, device)
        self._rows: RowPasses | None = None
        if RaggedCache.can_hold(self.config, device=device, dtype=self._dtype):
            self._rows = RowPasses(self._weights, self.config, (self._cos, self._sin))

    @property
    def takes_prompts_in_steps(self) -> bool:
        """See `TokenNetwork`."""
        return self._rows is not None

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """Allocate keys and values for `num_slots` sequences of at most `capacity` tokens."""
        capacity = min(capacity, self.max_positions)
        if self._rows is not None:
            return RaggedCache(self.config, num_slots=num_slots, capacity=capacity)
        shape = CacheShape(
            num_kv_heads=self.config.num_kv_heads,
            key_size=self.config.head_size,
            value_size=self.config.head_size,
        )
        return PaddedCache(
            [shape] * self.config.num_layers,
            num_slots=num_slots,
            capacity=capacity,
            device=self.device,
            dtype=DTYPES[self.precision.cache],
        )

    @torch.inference_mode()
    def extend(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """See `TokenNetwork.extend`."""
        check_spans(spans, cache=cache)
        tokens = np.concatenate([span.tokens for span in spans]).astype(np.int64)
        positions, sizes = span_positions(spans), [len(span.tokens) for span in spans]
        wanted = np.cumsum(sizes) - 1 if is_last_only else None
        if self._rows is not None:
            assert isinstance(cache, RaggedCache), _FOREIGN
            slots = np.repeat([span.slot for span in spans], sizes)
            return self._rows.run(cache, tokens, slots, positions, wanted)
        assert isinstance(cache, PaddedCache), _FOREIGN
        x = self._run(
            torch.from_numpy(tokens).to(self.device),
            torch.from_numpy(positions).to(self.device),
            cache.span_attention(spans),
        )
        return self._logits(x if wanted is None else x[torch.from_numpy(wanted).to(self.device)])

    @torch.inference_mode()
    def step(
        self,
        cache: SlotCache,
        tokens: Tensor,
        positions: Tensor,
        *,
        slots: Tensor | None = None,
        bound: int,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """See `TokenNetwork.step`."""
        if self._rows is not None:
            assert isinstance(cache, RaggedCache), _FOREIGN
            return self._rows.run(
                cache,
                tokens.numpy(),
                np.arange(cache.num_slots) if slots is None else slots.numpy(),
                positions.numpy(),
                None if wanted is None else wanted.numpy(),
            )
        assert isinstance(cache, PaddedCache), _FOREIGN
        assert wanted is None, "rows of this network are steps of a slot each"
        attend = cache.step_attention(positions, slots=slots, bound=bound)
        return self._logits(self._run(tokens, positions, attend))

    def _run(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Residual stream after the last layer, (N, hidden_size), of tokens at positions (N,)."""
        x = self._weights.embedding[tokens]
        phases = self._cos[positions, None], self._sin[positions, None]
        for index, layer in enumerate(self._weights.layers):
            attended = attend(index, *self._project(layer, x, phases))
            x = self._finish(layer, x, attended)
        return x

    def _project(
        self, layer: Layer, x: Tensor, phases: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values: each (N, heads, head_size), as the cache has it."""
        num_heads, num_kv, size = (
            self.config.num_heads,
            self.config.num_kv_heads,
            self.config.head_size,
        )
        heads = layer.qkv(layer.attention_norm(x)).view(len(x), num_heads + 2 * num_kv, size)
        qk, v = heads[:, : num_heads + num_kv], heads[:, num_heads + num_kv :]
        if layer.qk_norms is not None:
            q_norm, k_norm = layer.qk_norms
            qk = torch.cat((q_norm(qk[:, :num_heads]), k_norm(qk[:, num_heads:])), dim=1)
        qk = self._rotate(qk, phases).to(v.dtype)
        return qk[:, :num_heads], qk[:, num_heads:], v

    def _rotate(self, x: Tensor, phases: tuple[Tensor, Tensor]) -> Tensor:
        cos, sin = phases
        half = self.config.rotary_dims // 2
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def _finish(self, layer: Layer, x: Tensor, attended: Tensor) -> Tensor:
        """Residual stream after attention (N, heads, head_size) and the feed-forward layer."""
        attention = layer.attention_out(attended.flatten(1))
        if self.config.is_parallel:
            return x + (self._mlp(layer, x) + attention)
        x = x + attention
        return x + self._mlp(layer, x)

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        hidden = layer.mlp_in(layer.mlp_norm(x))
        if self.config.family == "gpt_neox":
            return layer.mlp_out(gelu(hidden))
        gate, up = hidden.chunk(2, dim=-1)
        return layer.mlp_out(silu(gate) * up)

    def _logits(self, x: Tensor) -> Tensor:
        return self._weights.output(self._weights.norm(x)).float()


def _rotary_phases(folder: ModelFolder, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position times frequency, fp32 (max_positions, rotary_dims / 2)."""
    settle_vector_math()
    dims = folder.network.rotary_dims
    exponents = torch.arange(0, dims, 2, dtype=torch.float32) / dims
    frequencies = 1.0 / folder.network.rope_base**exponents
    phases = torch.arange(folder.max_positions, dtype=torch.float32)[:, None] * frequencies
    return phases.cos().to(device), phases.sin().to(device)
