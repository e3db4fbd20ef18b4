"""The device that `--device` names."""

from __future__ import annotations

import torch

from data.runtime.environment import check_environment


def open_device(name: str) -> torch.device:
    """Return a device by name, checked; a GPU becomes the current one of the process.

    Streams, CUDA graphs and Triton kernels are made on the current device, whatever device their
    tensors are on.

    Args:
        name: `auto` for a GPU if there is one, `cpu`, `cuda`, or `cuda:1` and the like.

    Raises:
        ValueError: there is no such device, or an environment variable changes what is computed.
    """
    check_environment()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: got {name!r}, allowed are auto, cpu, cuda and cuda:N")
    if device.type == "cuda":
        num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = device.index or 0
        if index >= num_devices:
            found = f"{num_devices} GPUs" if num_devices else "no GPU"
            raise ValueError(f"device: got {name}, but PyTorch finds {found}")
        torch.cuda.set_device(index)
    return device
