"""Converted machines with torch's attention kernels, in hardware number formats.

The theorems assume rounding at fixed points, and kernels round elsewhere: the flash kernel, for
example, keeps scores in fp32 and rounds unnormalized attention weights. This module therefore
measures the predicted tokens on the sequences of a run, for increasing c.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from compile_tm.conversion.settings import Conversion
from compile_tm.hf import CompiledTransformerForCausalLM
from compile_tm.hf.export import hf_model
from compile_tm.hf.modeling_compiled import SparseMatrix
from compile_tm.measure.cases import Case
from compile_tm.runtime.trace import Trace

Kernel = Literal["math", "flash"]
KERNELS: dict[Kernel, SDPBackend] = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
}
"""`math` materializes the score matrix; `flash` does not."""
DtypeName = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[DtypeName, ...] = get_args(DtypeName)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """Result of one c, dtype and kernel on the sequences of a case."""

    c: float
    """Scale of queries and keys."""
    dtype: DtypeName
    """Dtype of weights and activations."""
    kernel: Kernel
    """Attention kernel."""
    first_wrong: int | None
    """Smallest context length, over sequences, with a wrong prediction; None if all are correct."""


def kernel_runs(
    case: Case,
    conversion: Conversion,
    *,
    scales: Iterable[float],
    dtypes: Sequence[DtypeName] = DTYPES,
    kernels: Iterable[Kernel] = KERNELS,
) -> Iterator[KernelRun]:
    """Predict the tokens of a case by teacher forcing, for all combinations.

    Args:
        case: Case.
        conversion: Conversion, whose c is replaced.
        scales: Values of c.
        dtypes: Dtypes.
        kernels: Kernels.
    """
    model, scales, kernels = hf_model(case.compiled, conversion), list(scales), list(kernels)
    for dtype in dtypes:
        nn.Module.to(model, getattr(torch, dtype))
        for c in scales:
            set_scale(model, c)
            for kernel in kernels:
                found = [
                    _first_wrong(predict(model, trace.ids, kernel=kernel), trace, prompt_length)
                    for trace, prompt_length in zip(case.traces, case.prompt_lengths, strict=True)
                ]
                wrong = [place for place in found if place is not None]
                yield KernelRun(
                    c=c, dtype=dtype, kernel=kernel, first_wrong=min(wrong) if wrong else None
                )


def least_scale(runs: Iterable[KernelRun]) -> float | None:
    """Return the smallest c such that it and all larger tested c are correct; None if none is."""
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
    """Return the predicted next token (n,) after each prefix of ids (n,).

    Raises:
        RuntimeError: the kernel does not support these shapes, the dtype or the device.
    """
    tokens = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(model.device)
    with sdpa_kernel(KERNELS[kernel]):
        best = model(tokens, use_cache=False).logits[0].argmax(dim=-1)
    predicted: npt.NDArray[np.int32] = best.cpu().numpy().astype(np.int32)
    return predicted


@torch.no_grad()
def set_scale(model: CompiledTransformerForCausalLM, c: float) -> None:
    """Set all nonzero entries of W_Q and W_K to c, rounded to the model's dtype."""
    for layer in model.layers:
        for name in ("W_Q", "W_K"):
            matrix = layer.get_submodule(name)
            assert isinstance(matrix, SparseMatrix)
            matrix.values.fill_(c)


def _first_wrong(predicted: npt.NDArray[np.int32], trace: Trace, prompt_length: int) -> int | None:
    start = prompt_length - 1
    wrong = np.flatnonzero(predicted[start:] != trace.predicted[start:])
    return int(wrong[0]) + prompt_length if len(wrong) else None
