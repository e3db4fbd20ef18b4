"""Copies from the host to a device that the host does not wait for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


def to_device(*arrays: Integers, device: torch.device) -> tuple[Tensor, ...]:
    """Copy arrays to a device, in one transfer.

    The transfer to a GPU is queued behind the work that runs there, so the host can go on.

    Returns:
        A tensor of each array, int64.
    """
    packed = torch.from_numpy(np.concatenate(arrays, dtype=np.int64))
    if device.type == "cuda":
        packed = packed.pin_memory()
    on_device = packed.to(device, non_blocking=True)
    return torch.split(on_device, [len(array) for array in arrays])
