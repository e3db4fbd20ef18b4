"""Tests of precision policies: torch settings and unsupported devices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from data.model_format.precision import PRECISIONS, get_precision
from training.models.precision import apply_precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _restore_global_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize("name", PRECISIONS)
def test_tf32_is_off_under_every_policy(name: str) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    apply_precision(get_precision(name), device=CPU)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_accelerate_gets_its_own_word() -> None:
    assert apply_precision(get_precision("bf16"), device=CPU) == "bf16"
    assert apply_precision(get_precision("fp32"), device=CPU) == "no"


def test_weights_and_phases_are_fp32_under_every_policy() -> None:
    for name, policy in PRECISIONS.items():
        assert policy.name == name
        assert policy.weights == policy.softmax == policy.rotary == "fp32"
        assert policy.as_dict()["activations"] == name


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_bf16_is_refused_where_the_device_lacks_it(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    with pytest.raises(ValueError, match=f"not supported on device {device}"):
        apply_precision(get_precision("bf16"), device=torch.device(device))
    assert apply_precision(get_precision("fp32"), device=torch.device(device)) == "no"


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'fp16', allowed are bf16, fp32"):
        get_precision("fp16")
