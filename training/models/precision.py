"""Configuration of torch for a precision policy."""

from __future__ import annotations

from typing import Literal

import torch

from data.model_format.precision import PrecisionPolicy


def apply_precision(policy: PrecisionPolicy, *, device: torch.device) -> Literal["bf16", "no"]:
    """Configure torch for a policy; call it once, before the model runs.

    TF32 is disabled under every policy, so that fp32 is exact.

    Returns:
        The value of `mixed_precision` for accelerate.

    Raises:
        ValueError: The device does not support the policy's dtypes.
    """
    if policy.activations == "bf16" and not _computes_bf16(device):
        raise ValueError(f"precision bf16: not supported on device {device}; allowed is fp32")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    return "bf16" if policy.activations == "bf16" else "no"


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu"
