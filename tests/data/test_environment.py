"""Tests of environment variables of libraries that change results."""

from __future__ import annotations

import pytest

from data.runtime.environment import ALLOWED_VALUES, check_environment, recorded_environment


def test_a_variable_left_over_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"ACCELERATE_GRADIENT_ACCUMULATION_STEPS: got '8'"):
        check_environment({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8"})
    for name, allowed in ALLOWED_VALUES.items():
        with pytest.raises(ValueError, match=name):
            check_environment({name: "bf16"})
        for value in (*allowed, *map(str.upper, allowed), ""):
            check_environment({name: value})


def test_what_the_launcher_of_accelerate_sets_is_allowed() -> None:
    check_environment(
        {
            "ACCELERATE_MIXED_PRECISION": "no",
            "ACCELERATE_DYNAMO_BACKEND": "NO",
            "ACCELERATE_DYNAMO_MODE": "default",
            "ACCELERATE_USE_CPU": "true",
        }
    )


def test_others_are_recorded() -> None:
    given = {"MKL_CBWR": "AVX2", "OMP_NUM_THREADS": "2", "HOME": "/home/me", "WANDB_API_KEY": "x"}
    assert recorded_environment(given) == "MKL_CBWR=AVX2 OMP_NUM_THREADS=2"
