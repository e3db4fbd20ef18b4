"""Rotary positional encodings rot_omega(x, n) as defined in the paper.

A head rotates the first 2l entries of its queries and keys in pairs: at position n, pair m is
rotated by n omega_m. A frequency is given by its period 2 pi / omega_m in positions, so that
multiples of quarter turns are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# MKL selects its kernels at the first cosine of a process, which can fail with several threads
# (PyTorch issue 188792); this call runs on one.
torch.zeros(1, device="cpu").cos()


def rotate(x: Tensor, positions: Tensor, periods: Sequence[float]) -> Tensor:
    """Rotate pair m of the last axis by 2 pi n / periods[m].

    Args:
        x: (.., T, w) with w >= 2 len(periods).
        positions: Positions n, (T,).
        periods: Positive periods.

    Returns:
        A tensor of the shape and type of `x`; entries behind the pairs are unchanged.

    Raises:
        ValueError: a period is not positive, or there are more pairs than `x` has.
    """
    rotated = 2 * len(periods)
    if rotated > x.shape[-1] or not all(period > 0 for period in periods):
        raise ValueError(
            f"periods: got {tuple(periods)}, allowed are positive ones, up to {x.shape[-1] // 2}"
        )
    cos, sin = turns(positions, periods, dtype=x.dtype)
    even, odd = x[..., 0:rotated:2], x[..., 1:rotated:2]
    result = x.clone()
    result[..., 0:rotated:2] = cos * even + sin * odd
    result[..., 1:rotated:2] = cos * odd - sin * even
    return result


def turns(
    positions: Tensor, periods: Sequence[float], *, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (T, l) of 2 pi n / period, exact at multiples of quarter turns."""
    exact = torch.tensor(periods, dtype=torch.float64, device=positions.device)
    quarters = 4 * torch.remainder(positions[:, None].to(torch.float64), exact) / exact
    nearest = quarters.round()
    # Angle from the nearest multiple of a quarter turn, which swaps and negates cosine and sine.
    rest = (quarters - nearest) * (math.pi / 2)
    cos, sin = torch.cos(rest), torch.sin(rest)
    which = nearest.to(torch.int64) % 4
    swapped, negative = which % 2 == 1, which >= 2
    cos, sin = torch.where(swapped, -sin, cos), torch.where(swapped, cos, sin)
    sign = torch.where(negative, -1.0, 1.0).to(torch.float64)
    return (sign * cos).to(dtype), (sign * sin).to(dtype)
