"""Converted machines under torch's own attention kernels, in real number formats.

The theorems round at fixed points. A kernel rounds where it likes: the flash kernel, for one, keeps
scores in fp32 but rounds weights that are not yet divided by their sum. So what it does is measured
here: the tokens it predicts on the sequences of a run, for growing c, against those of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from compile_tm.constructions.compiled import Compiled
from compile_tm.hf import CompiledTransformerForCausalLM
from compile_tm.hf.export import hf_model
from compile_tm.hf.modeling_compiled import SparseMatrix
from compile_tm.softmax.conversion import Conversion

Kernel = Literal["math", "flash"]
KERNELS: dict[Kernel, SDPBackend] = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
}
"""`math` multiplies matrices one after the other; `flash` never holds all scores."""
DtypeName = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """One c, format and kernel on one sequence."""

    c: float
    """Factor of queries and keys."""
    num_denoised: int
    """Layers that were denoised."""
    dtype: DtypeName
    """Format of weights and activations."""
    kernel: Kernel
    """Which kernel."""
    num_tokens: int
    """Tokens of the sequence, its prompt included."""
    first_wrong: int | None
    """Tokens that had been read before the first wrong one, the least context at which it fails;
    None where all are right."""


def kernel_runs(
    compiled: Compiled,
    ids: npt.NDArray[np.integer],
    *,
    prompt_length: int,
    conversion: Conversion,
    scales: Iterable[float],
    dtypes: Sequence[DtypeName] = ("float32", "bfloat16"),
    kernels: Sequence[Kernel] = ("math", "flash"),
) -> Iterator[KernelRun]:
    """Predict a sequence, each token from those before it, in every way.

    Args:
        compiled: The machine.
        ids: The sequence (n,) of the definitions.
        prompt_length: Tokens of it that are given.
        conversion: Which layers are denoised; its c is replaced.
        scales: The c to try.
        dtypes: Formats to try.
        kernels: Kernels to try.
    """
    model, scales = hf_model(compiled, conversion), list(scales)
    for dtype in dtypes:
        nn.Module.to(model, getattr(torch, dtype))
        for c in scales:
            set_scale(model, c)
            for kernel in kernels:
                predicted = predict(model, ids[:-1], kernel=kernel)
                wrong = np.flatnonzero(predicted[prompt_length - 1 :] != ids[prompt_length:])
                yield KernelRun(
                    c=c,
                    num_denoised=len(conversion.denoised),
                    dtype=dtype,
                    kernel=kernel,
                    num_tokens=len(ids),
                    first_wrong=int(wrong[0]) + prompt_length if len(wrong) else None,
                )


def least_scale(runs: Iterable[KernelRun]) -> float | None:
    """The least c from which on all tokens are right, for every greater c that was tried."""
    least = None
    for run in sorted(runs, key=lambda run: run.c, reverse=True):
        if run.first_wrong is not None:
            break
        least = run.c
    return least


@torch.inference_mode()
def predict(
    model: CompiledTransformerForCausalLM, ids: npt.NDArray[np.integer], *, kernel: Kernel
) -> npt.NDArray[np.int32]:
    """The token (n,) that the model says after each of the prefixes of ids (n,).

    Raises:
        RuntimeError: the kernel does not run on these shapes, formats or this device.
    """
    tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(model.device)
    with sdpa_kernel(KERNELS[kernel]):
        best = model(tokens, use_cache=False).logits[0].argmax(dim=-1)
    predicted: npt.NDArray[np.int32] = best.cpu().numpy().astype(np.int32)
    return predicted


@torch.no_grad()
def set_scale(model: CompiledTransformerForCausalLM, c: float) -> None:
    """Give all entries of W_Q and W_K the value c, or what the model's format makes of it."""
    for layer in model.layers:
        for name in ("W_Q", "W_K"):
            matrix = layer.get_submodule(name)
            assert isinstance(matrix, SparseMatrix)
            matrix.values.fill_(c)
