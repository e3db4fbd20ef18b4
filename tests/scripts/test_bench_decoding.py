"""Tests of the decoding benchmarks on a model with random weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench import agreement, decoding
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.toy_models import export, make_model

ENGINES = ("hf", "segment", "verify")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> decoding.CaseConfig:
    folder = tmp_path_factory.mktemp("bench")
    return decoding.CaseConfig(
        models=(
            export(make_model("llama"), folder / "a"),
            export(make_model("neox"), folder / "b"),
        ),
        puzzles=(write_csv(folder / "p.csv", make_puzzles("4x4", 12)),),
        engines=ENGINES,
        num_puzzles=5,
        num_slots=3,
        max_new_tokens=30,
        max_segment_tokens=20,
    )


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the number of threads is left as it is


def test_every_engine_has_a_row_for_every_model(case: decoding.CaseConfig, tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    assert decoding.main(decoding.Config(case=replace(case, out=out), num_turns=1)) == 0
    record = json.loads(out.read_text())
    assert [row["engine"] for row in record["rows"]] == [*ENGINES, *ENGINES]
    assert len({row["model"] for row in record["rows"]}) == 2
    for row in record["rows"]:
        assert row["same"] == 5
        assert 0 < row["tokens"] <= 150
        assert row["tokens/s"] == pytest.approx(row["tokens"] / row["seconds"])
    assert [row["ratio"] for row in record["rows"][::3]] == [1.0, 1.0]


def test_engines_agree(
    case: decoding.CaseConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "agreement.json"
    assert agreement.main(agreement.Config(case=replace(case, out=out))) == 0
    assert "widest margin" in capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert [(row["engine"], row["same"]) for row in rows] == [(name, 5) for name in ENGINES * 2]
    for first, *others in (rows[:3], rows[3:]):
        for row in others:
            assert {**row, "engine": "hf"} == first


def test_an_engine_that_writes_something_else_is_shown_with_the_margin(
    case: decoding.CaseConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    decode = agreement._decode

    def spoil(name, *others):  # type: ignore[no-untyped-def]
        results = decode(name, *others)
        if name == "verify":
            key, result = next(iter(results.items()))
            first = result.segments[0].copy()
            first[-1] = (first[-1] + 1) % 20
            results[key] = replace(result, segments=(first, *result.segments[1:]))
        return results

    monkeypatch.setattr(agreement, "_decode", spoil)
    out = tmp_path / "agreement.json"
    one = replace(case, models=case.models[:1], out=out)
    assert agreement.main(agreement.Config(case=one)) == 1
    hf, segment, verify = json.loads(out.read_text())["rows"]
    assert (hf["same"], segment["same"], verify["same"]) == (5, 5, 4)
    assert hf["widest margin"] is None
    assert verify["widest margin"] >= agreement.TIE
    bf16 = agreement.Config(case=replace(one, precision="bf16"))
    assert agreement.main(bf16) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engines": ("segment", "fast")}, "engines: got"),
        (
            {"puzzles": (Path("a"), Path("b"), Path("c"))},
            "puzzles: got 3 files, allowed are 1 or 2",
        ),
        ({"num_puzzles": 0}, "num_puzzles: got 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    case: decoding.CaseConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(case, **change)  # type: ignore[arg-type]


def test_puzzles_of_another_board_are_refused(case: decoding.CaseConfig, tmp_path: Path) -> None:
    other = write_csv(tmp_path / "six.csv", make_puzzles("6x6", 2))
    with pytest.raises(ValueError, match="puzzles: got 6x6, allowed is 4x4"):
        replace(case, puzzles=(other,)).cases()


def test_two_results_are_the_same_only_token_for_token(case: decoding.CaseConfig) -> None:
    folder, requests = case.cases()[0]
    result = next(iter(case.engine("segment", folder).decode(requests)))
    assert decoding.is_same(result, replace(result, seconds=0.0))
    shorter = (result.segments[0][:-1], *result.segments[1:])
    assert not decoding.is_same(result, replace(result, segments=shorter))
