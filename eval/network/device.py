"""Opens the device of the option `--device`."""

from __future__ import annotations

import torch

from data.runtime.environment import check_environment


def open_device(name: str) -> torch.device:
    """Return a device by name and make a GPU the current device of the process.

    Streams, CUDA graphs and Triton kernels use the current device, regardless of the device of
    their tensors.

    Args:
        name: `cpu`, `cuda`, `cuda:N`, or `auto` for a GPU if available.

    Raises:
        ValueError: There is no such device, or an environment variable affects the results.
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
