"""The benchmark of huge pages, on trainings of a few updates."""

from __future__ import annotations

import json
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
        num_tokens=8_000,
        num_turns=1,
        out=tmp_path / "table.json",
    )


def test_has_a_row_with_and_one_without(config: huge_pages.Config, tmp_path: Path) -> None:
    assert huge_pages.main(config) == 0
    plain, huge = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (plain["malloc"], huge["malloc"]) == ("plain", "huge pages")
    assert plain["ratio"] == 1
    assert huge["ratio"] == pytest.approx(huge["tokens/s"] / plain["tokens/s"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "small-6x6"}, "train run: .*6x6"),
        ({"num_tokens": 100}, "num_tokens: got 100, allowed are two updates or more"),
    ],
)
def test_turns_that_say_nothing_are_refused(
    config: huge_pages.Config, change: dict[str, object], message: str
) -> None:
    options = {"model": config.model, "num_tokens": config.num_tokens} | change
    with pytest.raises(ValueError, match=message):
        huge_pages.main(
            huge_pages.Config(data=config.data, precisions=("fp32",), **options)  # type: ignore[arg-type]
        )
