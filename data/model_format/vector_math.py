"""Workaround for inexact vector math in the first parallel call on a CPU."""

from __future__ import annotations

import torch


def initialize_vector_math() -> None:
    """Initialize the vector functions of MKL in one thread, before parallel calls.

    PyTorch computes cos, exp, sqrt and similar functions with MKL, which selects its kernels at the
    first call of a process. If several threads make that call concurrently, one of them may compute
    its share with 11 correct bits instead of 24 (PyTorch issue 188792; observed in one process of
    four with two threads). Call this before computing anything persistent: rotary tables, weights,
    optimizer steps. Repeated calls take microseconds.
    """
    torch.zeros(1, device="cpu").cos()
