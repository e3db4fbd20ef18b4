"""Weights of a model as bytes: the digest by which exports and evaluations name them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

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
