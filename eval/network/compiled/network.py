"""Inference of compiled transformers, for sequences of different lengths at once.

What `compile_tm` exports: no norms, positions in binary, averaging hardmax or softmax attention,
ReLU. Numbers are those of the exported model: fp32, or under `bf16` those of autocast, where inputs
and outputs of products are rounded to bf16, as queries, keys and values are, and sums are fp32.

The residual stream lies in columns, one a token, as products with sparse matrices want it:

    x    (hidden_size, N)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from data.model_format.precision import PrecisionPolicy
from eval.network.base import BaseNetwork
from eval.network.cache import Attend, CacheShape, PaddedCache
from eval.network.compiled.config import CompiledConfig
from eval.network.compiled.hardmax_cache import HardmaxCache
from eval.network.compiled.weights import CompiledAttention, make_weights
from eval.network.model_folder import ModelFolder
from eval.network.types import DTYPES


class CompiledNetwork(BaseNetwork):
    """A `TokenNetwork` with its weights on a device.

    Attributes:
        config: its shape.
    """

    def __init__(
        self, folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
    ) -> None:
        """Read the weights.

        Raises:
            ValueError: the folder's model is not a compiled one, or its files changed since it was
                opened, and are unfit now.
        """
        if not isinstance(folder.computed, CompiledConfig):
            raise ValueError(f"{folder.path}: got a model of the family {folder.family!r}")
        super().__init__(
            precision=precision,
            device=device,
            num_ids=folder.vocabulary.size,
            max_positions=folder.max_positions,
        )
        self.config = folder.computed
        self._dtype = DTYPES[precision.activations]
        self._weights = make_weights(
            folder.read_weights(),
            self.config,
            num_ids=self.num_ids,
            device=device,
            dtype=self._dtype,
        )
        self._coordinates = torch.tensor(self.config.position_coordinates, device=device)
        self._shifts = torch.arange(len(self._coordinates), device=device)[:, None]

    @property
    def cache_shapes(self) -> Sequence[CacheShape]:
        """Shape of each head's keys and values, layer after layer."""
        return self._weights.heads

    def new_cache(self, *, num_slots: int, capacity: int) -> PaddedCache:
        """See `TokenNetwork.new_cache`."""
        kind = HardmaxCache if self.config.attention == "hardmax" else PaddedCache
        return kind(
            self.cache_shapes,
            num_slots=num_slots,
            capacity=min(capacity, self.max_positions),
            device=self.device,
            dtype=DTYPES[self.precision.cache],
            scale=1 / math.sqrt(self.config.key_size),
        )

    def _hidden_states(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `BaseNetwork`."""
        x = self._weights.embedding[tokens].T.contiguous()
        x[self._coordinates] += (positions >> self._shifts & 1) * 2 - 1
        num_heads = 0
        for attention, mlp in self._weights.layers:
            if attention is not None:
                x = x + self._attention(attention, x, attend, first=num_heads)
                num_heads += len(attention.heads)
            if mlp is not None:
                hidden = self._product(mlp.inputs, x, mlp.bias).relu()
                x = x + self._product(mlp.output, hidden)
        return x.T

    def _attention(
        self, layer: CompiledAttention, x: Tensor, attend: Attend, *, first: int
    ) -> Tensor:
        """What the heads of a layer add, (hidden_size, N); `first` is the index of the first."""
        rows = self._product(layer.inputs, x).T.to(self._dtype)
        begin, attended = 0, []
        for index, head in enumerate(layer.heads, start=first):
            sizes = (head.key_size, head.key_size, head.value_size)
            q, k, v = rows[:, None, begin : begin + sum(sizes)].split(sizes, dim=-1)
            attended.append(attend(index, q, k, v)[:, 0])
            begin += sum(sizes)
        return self._product(layer.output, torch.cat(attended, dim=1).T)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._product(self._weights.output, hidden.T).T

    def _product(self, matrix: Tensor, x: Tensor, bias: Tensor | float = 0.0) -> Tensor:
        """`matrix @ x + bias`, both factors and the result rounded to the format of products."""
        return self._rounded(matrix @ self._rounded(x) + bias)

    def _rounded(self, x: Tensor) -> Tensor:
        return x.to(self._dtype).float()
