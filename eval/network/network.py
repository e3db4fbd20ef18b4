"""Inference of Llama, Qwen3 and GPT-NeoX for batches of sequences of different lengths.

    network = Network(ModelFolder.open(path), precision=get_precision("fp32"), device=device)
    cache = network.new_cache(num_slots=8, capacity=1024)
    logits = network.prefill(cache, [Span(slot=3, start=0, tokens=prompt)], is_last_only=True)
    logits = network.decode_step(cache, tokens, positions, slots=slots, max_seq_len=max_seq_len)

The result of a row depends on other rows only through the order of summation that the matrix
library chooses for a batch size. A sequence can be continued from any position up to its length.

Number formats follow training (`data.model_format.precision`). `bf16` reproduces autocast: weights
are fp32 and rounded to bf16 for matrix products, whose inputs and outputs (including the logits)
are bf16; the residual stream, norms and rotary embeddings are fp32; queries, keys and values are
rounded to bf16 after rotation, so that the KV cache is bf16; softmax accumulates in fp32. In
`fp32`, all computations are fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import silu

from data.model_format.precision import PrecisionPolicy
from data.model_format.vector_math import initialize_vector_math
from eval.network.base import BaseNetwork
from eval.network.cache import Attend, CacheShape
from eval.network.config import NetworkConfig
from eval.network.model_folder import ModelFolder
from eval.network.ragged_cache import RaggedCache
from eval.network.rows import RowPasses
from eval.network.types import ACTIVATIONS, DTYPES
from eval.network.weights import Layer, make_weights


class Network(BaseNetwork):
    """A Llama, Qwen3 or GPT-NeoX model.

    Attributes:
        folder: Model folder.
        config: Configuration.
    """

    def __init__(
        self, folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
    ) -> None:
        """Load the weights.

        Raises:
            ValueError: The files have changed since the folder was opened and are no longer valid.
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
        if RaggedCache.can_hold(self.config, device=device, dtype=dtype):
            self._rows = RowPasses(self._weights, self.config, (self._cos, self._sin))

    @property
    def cache_shapes(self) -> Sequence[CacheShape]:
        """See `BaseNetwork`."""
        return cache_shapes(self.config)

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
        """Return rotated queries and keys, and values: (N, heads, head_size), in cache dtype."""
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
        """Return the residual stream after the output projection and the feed-forward layer."""
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
    """Return the shape of the keys and values of each layer."""
    size = config.head_size
    shape = CacheShape(num_kv_heads=config.num_kv_heads, key_size=size, value_size=size)
    return [shape] * config.num_layers


def _rotary_phases(folder: ModelFolder, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the rotary angles, fp32 (max_positions, rotary_dims / 2)."""
    initialize_vector_math()
    dims = folder.network.rotary_dims
    exponents = torch.arange(0, dims, 2, dtype=torch.float32) / dims
    factors = torch.tensor(folder.network.rope_factors or 1.0)
    frequencies = 1.0 / (factors * folder.network.rope_base**exponents)
    phases = torch.arange(folder.max_positions, dtype=torch.float32)[:, None] * frequencies
    return phases.cos().to(device), phases.sin().to(device)
