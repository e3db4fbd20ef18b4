"""Weights of a model: the digest by which exports and evaluations name them, quiet loading."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


def weights_digest(weights: nn.Module | Mapping[str, Tensor]) -> str:
    """Hex sha256 of the names, shapes, types and bytes of all weights."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Spare the log the bars that transformers draws even for one small file."""
    from transformers.utils import logging as transformers_logging  # slow, and few need it

    is_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_enabled:
            transformers_logging.enable_progress_bar()
