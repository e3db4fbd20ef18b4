"""Environment variables of libraries that change results, which are rejected or recorded.

accelerate and torch read settings from the environment, where a leftover variable of another
program would silently change a run. The lists follow the sources of accelerate 1.15, torch 2.13,
oneDNN and MKL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ALLOWED_VALUES: dict[str, tuple[str, ...]] = {
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ("1",),
    "ACCELERATE_MIXED_PRECISION": ("no",),
    "ACCELERATE_DYNAMO_BACKEND": ("no",),
    "ACCELERATE_TORCH_DEVICE": (),
    "ACCELERATE_USE_DEEPSPEED": ("false", "0", "no"),
    "ACCELERATE_USE_FSDP": ("false", "0", "no"),
    "ACCELERATE_USE_MEGATRON_LM": ("false", "0", "no"),
    "ACCELERATE_USE_PARALLELISM_CONFIG": ("false", "0", "no"),
    "NVIDIA_TF32_OVERRIDE": ("0",),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("0",),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("strict",),
    "DNNL_DEFAULT_FPMATH_MODE": ("strict",),
    "TORCHINDUCTOR_USE_FAST_MATH": ("0",),
    "TORCHINDUCTOR_CPP_ENABLE_UNSAFE_MATH_OPT_FLAG": ("0",),
    "TORCHDYNAMO_SUPPRESS_ERRORS": ("0",),
}
"""Variables that change results, with the values that do not; unset is always allowed."""

RECORDED_PREFIXES = (
    "ACCELERATE_",
    "ATEN_",
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOTO_NUM_THREADS",
    "KMP_",
    "LD_PRELOAD",
    "MALLOC_",
    "MKL_",
    "NCCL_",
    "NUMBA_",
    "NVIDIA_TF32",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_",
    "VLLM_",
)


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Check that no variable changes results.

    Raises:
        ValueError: A variable has a value that is not allowed; the message names it.
    """
    for name, allowed in ALLOWED_VALUES.items():
        value = environment.get(name)
        if value is not None and value.strip().lower() not in ("", *allowed):
            values = " or ".join((*allowed, "unset"))
            raise ValueError(f"environment variable {name}: got {value!r}, allowed is {values}")


def recorded_environment(environment: Mapping[str, str] = os.environ) -> str:
    """Return the variables that may change speed or rounding, as `NAME=VALUE NAME=VALUE`."""
    names = sorted(name for name in environment if name.startswith(RECORDED_PREFIXES))
    return " ".join(f"{name}={environment[name]}" for name in names)
