"""What PyTorch needs on a CPU so that its first cosine is as exact as all later ones."""

from __future__ import annotations

import torch


def settle_vector_math() -> None:
    """Call a vector function of MKL from one thread, before several threads call one at once.

    PyTorch hands cos, exp, sqrt and their like to MKL, which picks its kernels at the first call of
    a process. Where several threads make that call together, one of them can compute its share with
    11 right bits in place of 24, this once (PyTorch issue 188792; one process in four with two
    threads). Call this before anything that stays: tables of cosines, weights, optimizer steps.
    It costs microseconds; that it ran before is no reason to leave it out.
    """
    torch.zeros(1, device="cpu").cos()
