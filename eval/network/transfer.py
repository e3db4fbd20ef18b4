"""Asynchronous copies from the host to a device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


def to_device(*arrays: Integers, device: torch.device) -> tuple[Tensor, ...]:
    """Copy integer arrays to a device in one transfer, without synchronization.

    Returns:
        An int64 tensor for each array.
    """
    packed = torch.from_numpy(np.concatenate(arrays, dtype=np.int64))
    if device.type == "cuda":
        packed = packed.pin_memory()
    on_device = packed.to(device, non_blocking=True)
    return torch.split(on_device, [len(array) for array in arrays])
