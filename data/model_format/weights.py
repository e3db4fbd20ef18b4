"""Model weights: digest, parameter count, and helpers for loading and writing."""

from __future__ import annotations

import contextlib
import hashlib
import math
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from data.model_format.names import canonical_name


def weights_digest(weights: nn.Module | Mapping[str, Tensor]) -> str:
    """Return the hex SHA-256 of the canonical names, shapes, dtypes and bytes of all weights."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    digest = hashlib.sha256()
    for name, tensor in sorted((canonical_name(name), value) for name, value in weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        dense = tensor.detach().cpu().contiguous()
        # A view as bytes requires stride 1, which contiguous tensors of 0 or 1 elements may lack.
        flat = dense.as_strided((dense.numel(),), (1,))
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def count_stored_parameters(folder: Path) -> int:
    """Count the parameters in the safetensors files of a folder; tied matrices count once."""
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    return total


def stored_types(folder: Path) -> dict[str, torch.dtype]:
    """Return the dtype of each tensor in the safetensors files of a model folder."""
    types: dict[str, torch.dtype] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            # An empty slice has the dtype without reading weights.
            types |= {name: file.get_slice(name)[:0].dtype for name in file.keys()}  # noqa: SIM118 - no mapping
    return types


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Disable the progress bars of transformers."""
    from transformers.utils import logging as transformers_logging  # a slow import

    is_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_enabled:
            transformers_logging.enable_progress_bar()


@contextlib.contextmanager
def clear_read_errors(folder: Path) -> Iterator[None]:
    """Convert the errors of transformers on malformed model folders to `ValueError`."""
    try:
        yield
    except (OSError, ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except pickle.UnpicklingError as error:
        # The message of torch recommends loading with code execution enabled.
        raise ValueError(
            f"{folder}: the weights file contains more than tensors and is rejected"
        ) from error
    except Exception as error:  # tokenizers raises `Exception` itself
        message = " ".join(str(error).split())
        raise ValueError(f"{folder}: damaged or incompatible model: {message}") from error


@contextlib.contextmanager
def clear_write_errors(path: Path) -> Iterator[None]:
    """Convert errors of safetensors and torch on failed writes to `OSError`.

    For example, on a full disk torch raises a `RuntimeError`, "unexpected pos 64 vs 0".
    """
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        raise OSError(f"{path}: cannot be written, the disk may be full: {error}") from error
