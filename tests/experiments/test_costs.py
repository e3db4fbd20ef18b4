"""Tests of the cost model, and of the costs page in the documentation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data.runtime.schema import from_plain
from scripts.experiments.costs import build_cost, evaluation_cost, mean_context, training_cost
from scripts.experiments.costs_page import costs_page
from scripts.experiments.rates import Rate, rates_by_name, read_rates
from scripts.experiments.trainings import cot, scot_small
from training.models.families import flops_per_token, paper_model

ROOT = Path(__file__).parents[2]
RATES = rates_by_name(read_rates())


def test_the_page_in_the_documents_is_up_to_date() -> None:
    assert (ROOT / "docs" / "costs.md").read_text() == costs_page()


def test_one_gpu_is_limited_by_arithmetic() -> None:
    context = 18_916_908_506 / 26_968_686
    assert mean_context("scot", 2**14) == pytest.approx(context)
    flops = flops_per_token(paper_model(6), context=context) * 20e9
    cost = training_cost(scot_small(6), RATES, num_gpus=1)
    assert cost.hours == pytest.approx(flops / (0.4 * 989e12) / 3600)
    assert cost.bottleneck == "arithmetic"


def test_context_of_cot_weighs_by_tokens() -> None:
    """By hand for N = 2^11: both octaves as long as their means."""
    first, second = 549_886_480, 1_081_910_259 - 549_886_480
    squares = first**2 / 1_003_062 + second**2 / (1_366_621 - 1_003_062)
    assert mean_context("cot", 2**11) == pytest.approx(squares / (first + second))


def test_many_gpus_are_limited_by_what_they_share() -> None:
    cost = training_cost(scot_small(6), RATES, num_gpus=64)
    assert cost.bottleneck == "all-reduce of gradients"
    assert cost.device_hours == pytest.approx(64 * cost.hours)
    long = training_cost(cot(6, precision="fp32"), RATES, num_gpus=64)
    assert long.bottleneck == "only 7 longest sequences fit an update"
    network = training_cost(scot_small(6), RATES, num_gpus=8, is_one_node=False)
    assert network.hours > training_cost(scot_small(6), RATES, num_gpus=8).hours
    slow_launches = replace(RATES, launch_s_per_layer=1.0)
    assert training_cost(scot_small(6), slow_launches, num_gpus=8).bottleneck == "kernel launches"


def test_bottlenecks_of_builds_and_evaluations() -> None:
    assert build_cost("cot", RATES, num_cores=16).bottleneck == "tracing"
    assert build_cost("cot", RATES, num_cores=100_000).bottleneck == "writing to disk"
    one, many = (
        evaluation_cost(
            scot_small(6), RATES, engine="segment", num_puzzles=422_786, num_gpus=num_gpus
        )
        for num_gpus in (1, 1000)
    )
    assert one.bottleneck == "reading the KV cache"
    assert many.bottleneck == "the longest puzzle, token by token"
    assert one.hours > many.hours == pytest.approx(5e6 * 6 * 5e-5 / 3600)


def test_rates_are_complete_and_have_a_source() -> None:
    entries = read_rates()
    assert all(rate.source for rate in entries)
    with pytest.raises(ValueError, match="allowed are gpu_bf16_flops"):
        rates_by_name(entries[1:])
    values = {"name": "x", "value": 1, "unit": "s", "kind": "assumed", "source": ""}
    with pytest.raises(ValueError, match="kind: got 'guess'"):
        from_plain(Rate, {**values, "kind": "guess"})
    with pytest.raises(ValueError, match="value: got 0"):
        from_plain(Rate, {**values, "value": 0})
