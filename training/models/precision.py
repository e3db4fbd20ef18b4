"""What a precision policy asks of the device."""

from __future__ import annotations

from typing import Literal

import torch

from data.model_format.precision import PrecisionPolicy


def apply_precision(policy: PrecisionPolicy, *, device: torch.device) -> Literal["bf16", "no"]:
    """Prepare torch for a policy; call it once, before the model runs.

    TF32 is turned off under every policy: what is called fp32 is fp32.

    Returns:
        The value for accelerate's `mixed_precision`.

    Raises:
        ValueError: the device cannot compute in the policy's types.
    """
    if policy.activations == "bf16" and not _computes_bf16(device):
        raise ValueError(f"precision bf16: got device {device}, which lacks it; allowed is fp32")
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    return "bf16" if policy.activations == "bf16" else "no"


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu"
