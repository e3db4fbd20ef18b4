"""Tests of the huge-pages benchmark on trainings of a few updates."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from scripts.bench import huge_pages
from tests.training.toy import write_toy_data


@pytest.fixture
def config(tmp_path: Path) -> huge_pages.Config:
    write_toy_data(tmp_path / "cot")
    return huge_pages.Config(
        data=tmp_path / "cot",
        model="tiny-4x4",
        precisions=("fp32",),
        num_tokens=4_500,
        num_turns=1,
        out=tmp_path / "table.json",
    )


@pytest.mark.slow
def test_has_a_row_with_and_one_without(config: huge_pages.Config, tmp_path: Path) -> None:
    assert huge_pages.main(config) == 0
    plain, huge = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (plain["malloc"], huge["malloc"]) == ("plain", "huge pages")
    assert plain["ratio"] == 1
    assert huge["ratio"] == pytest.approx(huge["tokens/s"] / plain["tokens/s"])


def test_a_failed_training_is_an_error(config: huge_pages.Config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train run: .*no manifest"):
        huge_pages.main(dataclasses.replace(config, data=tmp_path))


def test_a_single_update_has_no_second_half(
    config: huge_pages.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess[str]([], 0)
    monkeypatch.setattr("scripts.bench.huge_pages.subprocess.run", lambda *_, **__: done)
    monkeypatch.setattr(huge_pages, "read_metrics", lambda _: [{"kind": "train"}])
    with pytest.raises(ValueError, match="num_tokens: got 4500, allowed are two updates or more"):
        huge_pages.main(config)
