"""Inference of Llama, Qwen3 and GPT-NeoX weights, for sequences of different lengths at once.

    network = Network(ModelFolder.open(path), precision=get_precision("fp32"), device=device)
    cache = network.new_cache(num_slots=8, capacity=1024)
    logits = network.prefill(cache, [Span(slot=3, start=0, tokens=prompt)], is_last_only=True)
    logits = network.decode_step(cache, tokens, positions, slots=slots, max_seq_len=max_seq_len)

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
from torch.nn.functional import silu

from data.model_format.precision import PrecisionPolicy
from data.model_format.vector_math import settle_vector_math
from eval.network.base import BaseNetwork, last_rows, span_tokens
from eval.network.cache import Attend, CacheShape, check_spans, span_positions
from eval.network.config import NetworkConfig
from eval.network.model_folder import ModelFolder
from eval.network.ragged_cache import RaggedCache
from eval.network.rows import RowPasses
from eval.network.types import ACTIVATIONS, DTYPES, SlotCache, Span
from eval.network.weights import Layer, make_weights


class Network(BaseNetwork):
    """A `TokenNetwork` with its weights on a device.

    Attributes:
        folder: folder that it was read from.
        config: its shape.
    """

    def __init__(
        self, folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
    ) -> None:
        """Read the weights.

        Raises:
            ValueError: the folder's files changed since it was opened, and are unfit now.
        """
        super().__init__(
            precision=precision,
            device=device,
            num_ids=folder.vocabulary.size,
            max_positions=folder.max_positions,
        )
        self.folder, self.config = folder, folder.network
        dtype = DTYPES[precision.activations]
        self._weights = make_weights(
            folder.read_weights(), self.config, num_ids=self.num_ids, device=device, dtype=dtype
        )
        self._cos, self._sin = _rotary_phases(folder, device)
        self._rows: RowPasses | None = None
        if RaggedCache.can_hold(self.config, device=device, dtype=dtype):
            self._rows = RowPasses(self._weights, self.config, (self._cos, self._sin))

    @property
    def supports_mixed_batches(self) -> bool:
        """See `TokenNetwork`."""
        return self._rows is not None

    @property
    def cache_shapes(self) -> Sequence[CacheShape]:
        """See `BaseNetwork`."""
        return cache_shapes(self.config)

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """See `TokenNetwork.new_cache`."""
        if self._rows is None:
            return super().new_cache(num_slots=num_slots, capacity=capacity)
        capacity = min(capacity, self.max_positions)
        return RaggedCache(self.config, num_slots=num_slots, capacity=capacity)

    @torch.inference_mode()
    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """See `TokenNetwork.prefill`."""
        if self._rows is None:
            return super().prefill(cache, spans, is_last_only=is_last_only)
        assert isinstance(cache, RaggedCache), "a cache of another network"
        check_spans(spans, cache=cache)
        slots = np.repeat([span.slot for span in spans], [len(span.tokens) for span in spans])
        logits_indices = last_rows(spans) if is_last_only else None
        return self._rows.run(
            cache, span_tokens(spans), slots, span_positions(spans), logits_indices
        )

    @torch.inference_mode()
    def decode_step(
        self,
        cache: SlotCache,
        tokens: Tensor,
        positions: Tensor,
        *,
        slots: Tensor | None = None,
        max_seq_len: int,
        logits_indices: Tensor | None = None,
    ) -> Tensor:
        """See `TokenNetwork.decode_step`."""
        if self._rows is None:
            return super().decode_step(
                cache,
                tokens,
                positions,
                slots=slots,
                max_seq_len=max_seq_len,
                logits_indices=logits_indices,
            )
        assert isinstance(cache, RaggedCache), "a cache of another network"
        return self._rows.run(
            cache,
            tokens.numpy(),
            np.arange(cache.num_slots) if slots is None else slots.numpy(),
            positions.numpy(),
            None if logits_indices is None else logits_indices.numpy(),
        )

    def _hidden_states(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `BaseNetwork`."""
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
            return layer.mlp_out(ACTIVATIONS[self.config.activation](hidden))
        gate, up = hidden.chunk(2, dim=-1)
        return layer.mlp_out(silu(gate) * up)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._weights.output(self._weights.norm(hidden)).float()


def cache_shapes(config: NetworkConfig) -> list[CacheShape]:
    """Return the shape of each layer's keys and values."""
    size = config.head_size
    shape = CacheShape(num_kv_heads=config.num_kv_heads, key_size=size, value_size=size)
    return [shape] * config.num_layers


def _rotary_phases(folder: ModelFolder, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position times frequency, fp32 (max_positions, rotary_dims / 2)."""
    settle_vector_math()
    dims = folder.network.rotary_dims
    exponents = torch.arange(0, dims, 2, dtype=torch.float32) / dims
    factors = torch.tensor(folder.network.rope_factors or 1.0)
    frequencies = 1.0 / (factors * folder.network.rope_base**exponents)
    phases = torch.arange(folder.max_positions, dtype=torch.float32)[:, None] * frequencies
    return phases.cos().to(device), phases.sin().to(device)
