"""KV cache without padding, in fp32 on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from eval.network.config import NetworkConfig
from eval.network.kernels import BLOCK, UNROLLED

Floats = npt.NDArray[np.float32]


class RaggedCache:
    """A `SlotCache` for `eval.network.rows`, with the layout of `eval.network.kernels`.

    The operating system commits memory on first write, and the layout fills from the beginning, so
    that a large capacity takes no memory until a sequence reaches it.

    Attributes:
        layers: Keys and values of each layer.
        length: Number of positions used by the longest sequence.
    """

    def __init__(self, config: NetworkConfig, *, num_slots: int, capacity: int) -> None:
        """Reserve the memory."""
        self.num_slots, self.capacity = num_slots, capacity
        self.length = 0
        self._config = config
        self.layers = [self._reserve() for _ in range(config.num_layers)]

    @staticmethod
    def can_hold(config: NetworkConfig, *, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether the kernels support a network: fp32, CPU, sizes divisible by `UNROLLED`."""
        is_plain = device.type == "cpu" and dtype == torch.float32
        return is_plain and not (config.head_size % UNROLLED or config.hidden_size % UNROLLED)

    def grow(self, capacity: int) -> None:
        """See `SlotCache`; layers are copied one at a time to bound the peak memory."""
        if capacity <= self.capacity:
            return
        num_blocks = -(-self.length // BLOCK)
        self.capacity = capacity
        for index, layer in enumerate(self.layers):
            grown = self._reserve()
            for source, target in zip(layer, grown, strict=True):
                target[:num_blocks] = source[:num_blocks]
            self.layers[index] = grown

    def _reserve(self) -> tuple[Floats, Floats]:
        """Return keys and values of a layer."""
        size = self._config.head_size
        shape = (-(-self.capacity // BLOCK), self.num_slots, self._config.num_kv_heads)
        return (
            np.zeros((*shape, size, BLOCK), dtype=np.float32),
            np.zeros((*shape, BLOCK, size), dtype=np.float32),
        )
