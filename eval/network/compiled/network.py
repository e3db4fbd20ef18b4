"""Inference of compiled transformers for batches of sequences of different lengths.

Supports the models of `compile_tm`: no norms, binary position encodings, averaging hardmax or
softmax attention, ReLU. `bf16` reproduces autocast: inputs and outputs of matrix products, queries,
keys and values are rounded to bf16, and sums are fp32.

The residual stream is transposed, as sparse matrices are multiplied from the left:

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
    """A compiled transformer.

    Attributes:
        config: Configuration.
    """

    def __init__(
        self, folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
    ) -> None:
        """Load the weights.

        Raises:
            ValueError: The model is not a compiled one, or the files have changed since the folder
                was opened and are no longer valid.
        """
        if not isinstance(folder.network_config, CompiledConfig):
            raise ValueError(f"{folder.path}: got a model of the family {folder.family!r}")
        super().__init__(
            precision=precision,
            device=device,
            num_ids=folder.vocabulary.size,
            max_positions=folder.max_positions,
        )
        self.config = folder.network_config
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
        """Shape of the keys and values of each head, layer by layer."""
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
        """Return the output of the heads of a layer, (hidden_size, N).

        Args:
            layer: Weights of the heads.
            x: Residual stream.
            attend: Attention by index of the head.
            first: Index of the first head of the layer.
        """
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
        """Return `matrix @ x + bias`, with factors and result rounded to the compute dtype."""
        return self._rounded(matrix @ self._rounded(x) + bias)

    def _rounded(self, x: Tensor) -> Tensor:
        return x.to(self._dtype).float()
