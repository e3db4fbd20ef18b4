"""Tests of the benchmark of allocators, on trainings of a few updates."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from scripts.bench import allocators
from tests.training.toy import write_toy_data


@pytest.fixture
def config(tmp_path: Path) -> allocators.Config:
    write_toy_data(tmp_path / "cot")
    return allocators.Config(
        data=tmp_path / "cot",
        model="tiny-4x4",
        precisions=("fp32",),
        num_tokens=4_500,
        num_turns=1,
        out=tmp_path / "table.json",
    )


@pytest.mark.slow
def test_each_allocator_has_a_row(config: allocators.Config, tmp_path: Path) -> None:
    assert allocators.main(config) == 0
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["allocator"] for row in rows] == [*allocators.allocator_variables()]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["tokens/s"] / rows[0]["tokens/s"])
        assert 0.05 < row["peak GB"] < 50  # torch alone takes 0.2


@pytest.mark.parametrize(("library", "count"), [(None, 3), ("libjemalloc.so.2", 4)])
def test_jemalloc_is_included_if_it_is_installed(
    library: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocators, "find_library", lambda _: library)
    settings = allocators.allocator_variables()
    assert len(settings) == count
    assert settings.get("jemalloc", {}).get("LD_PRELOAD") == library


def test_the_guide_states_the_options_of_jemalloc() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guide.md"
    assert f"MALLOC_CONF={allocators.JEMALLOC_CONF}`" in guide.read_text()


def test_a_failed_training_is_an_error(config: allocators.Config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train run: .*no manifest"):
        allocators.main(dataclasses.replace(config, data=tmp_path))


def test_a_single_update_has_no_second_half() -> None:
    with pytest.raises(ValueError, match="num_tokens: got 1 updates, allowed are two or more"):
        allocators.second_half_rate([{"num_tokens": 1, "session_s": 1.0}])
