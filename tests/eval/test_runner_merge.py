"""Tests of merging the parts of an evaluation, and of scoring again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from data.runtime.digests import DIGESTS_FILE
from data.runtime.parts import Part, part_folder
from eval.engines.contract import FinishReason
from eval.results.folder import (
    CONFIG_FILE,
    RESULTS_FILE,
    EvaluationFolder,
)
from eval.results.merge import merge
from eval.results.runner import evaluate, part_of_sample
from eval.results.score import rescore
from tests.eval.fake_engine import FakeEngine, toy_folder, toy_sample
from tests.eval.runs import NUM_PUZZLES, run_one, without_timing


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EvaluationFolder:
    """An evaluation in one run."""
    path = tmp_path_factory.mktemp("whole") / "e"
    return evaluate(toy_folder(path, NUM_PUZZLES), FakeEngine(), part=None)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three finished parts."""
    folders = []
    for index in range(3):
        part = Part(index=index, count=3)
        path = part_folder(tmp_path / "e", part)
        folders.append(run_one(toy_folder(path, NUM_PUZZLES), part=part).path)
    return folders


def test_merged_parts_equal_one_run(
    whole: EvaluationFolder, parts: list[Path], tmp_path: Path
) -> None:
    assert [len(EvaluationFolder.open(path).rows) for path in parts] == [14, 13, 13]
    assert not EvaluationFolder.open(parts[0]).summary.is_complete
    merged = merge(tmp_path / "e")
    assert without_timing(merged.path) == without_timing(whole.path)
    assert not parts[0].parent.exists()


def test_a_merge_that_was_cut_short_is_finished_by_the_next(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "e"
    with monkeypatch.context() as patch:
        patch.setattr("eval.results.merge.remove_superseded", lambda _: None)
        merged = merge(out)
    assert parts[0].exists()
    for _ in range(2):
        assert len(merge(out).rows) == len(merged.rows)
        assert not parts[0].parent.exists()
    folder = toy_folder(part_folder(out, Part(index=0, count=1)), NUM_PUZZLES)
    folder.write_config(replace(folder.config, engine="hf"))
    with pytest.raises(FileExistsError, match="not merged from these parts; --rebuild"):
        merge(out)
    assert folder.path.exists()


def test_rebuild_replaces_evaluations_alone(parts: list[Path], tmp_path: Path) -> None:
    """`--rebuild` removed whatever was there: a thesis, or all runs."""
    out = tmp_path / "e"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"files but no evaluation.json"):
        merge(out, rebuild=True)
    assert (out / "thesis.tex").exists()
    (out / "thesis.tex").rename(tmp_path / "thesis.tex")
    toy_folder(out, 3)
    assert merge(out, rebuild=True).is_complete
    assert not parts[0].exists()


def rewrite(path: Path, lines: Sequence[str]) -> None:
    """Replace the results of a part that has no digests, as one that is not finished."""
    (path / DIGESTS_FILE).unlink(missing_ok=True)
    (path / RESULTS_FILE).write_text("".join(lines))


def test_merge_refuses_missing_double_and_foreign_results(
    parts: list[Path], tmp_path: Path
) -> None:
    out, lines = tmp_path / "e", {}
    for path in parts:
        lines[path] = (path / RESULTS_FILE).read_text().splitlines(keepends=True)
    rewrite(parts[1], lines[parts[1]][:-2])
    with pytest.raises(
        ValueError, match=r"1-of-3: puzzles without a result: 2, .*run this part again"
    ):
        merge(out)
    rewrite(parts[1], [*lines[parts[1]], lines[parts[0]][0]])
    with pytest.raises(ValueError, match="is in both 0-of-3 and 1-of-3"):
        merge(out)
    rewrite(parts[1], [*lines[parts[1]], lines[parts[1]][0]])
    with pytest.raises(ValueError, match="is repeated"):
        merge(out)
    foreign = lines[parts[1]][0].replace('"key":"', '"key":"f')
    rewrite(parts[1], [*lines[parts[1]], foreign])
    with pytest.raises(ValueError, match="is not in the sample"):
        merge(out)
    rewrite(parts[1], lines[parts[1]])
    folder = EvaluationFolder.open(parts[2])
    folder.write_config(replace(folder.config, engine="hf"))
    with pytest.raises(ValueError, match=r"2-of-3: differs from 0-of-3 in engine"):
        merge(out)
    (parts[2] / CONFIG_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="missing 2-of-3"):
        merge(out)
    assert not out.exists()


def test_parts_are_disjoint_complete_and_of_equal_difficulty() -> None:
    sample = toy_sample(31)
    parts = [part_of_sample(sample, Part(index=index, count=4)) for index in range(4)]
    keys = [puzzle.key for part in parts for puzzle in part]
    assert sorted(keys) == [puzzle.key for puzzle in sample]
    lengths = [[puzzle.cot_length for puzzle in part] for part in parts]
    assert all(part == sorted(part, reverse=True) for part in lengths)
    assert max(map(sum, lengths)) - min(map(sum, lengths)) <= lengths[0][0]


def test_scoring_twice_changes_nothing_and_once_mends_a_wrong_class(
    whole: EvaluationFolder, tmp_path: Path
) -> None:
    folder = run_one(toy_folder(tmp_path / "e", NUM_PUZZLES))
    before = without_timing(folder.path)
    assert rescore(folder) == []
    assert without_timing(folder.path) == before
    damaged = [
        replace(row, finish_reason=FinishReason.WRONG) if row.is_solved else row
        for row in folder.rows
    ]
    folder.replace_rows(damaged)
    folder.finish()
    assert EvaluationFolder.open(folder.path).summary.accuracy.num_solved == 0
    changes = rescore(EvaluationFolder.open(folder.path))
    assert len(changes) == whole.summary.accuracy.num_solved
    assert {(old.finish_reason, new.finish_reason) for old, new in changes} == {
        (FinishReason.WRONG, FinishReason.SOLVED)
    }
    assert without_timing(folder.path) == before


def test_a_solved_row_without_an_output_is_an_error(tmp_path: Path) -> None:
    folder = run_one(toy_folder(tmp_path / "e", 3))
    folder.replace_rows([replace(folder.rows[0], output=None, finish_reason=FinishReason.SOLVED)])
    with pytest.raises(ValueError, match="solved without an output"):
        rescore(folder)


def test_all_cells_but_one_right_is_not_solved(tmp_path: Path) -> None:
    """Users read the share of right cells as the share of solved grids; it is no number of ours."""
    folder = run_one(toy_folder(tmp_path / "e", NUM_PUZZLES))
    row = next(row for row in folder.rows if row.is_solved)
    assert row.output is not None
    output = row.output.copy()
    output[2] = output[2] - 1 if output[2] > output[2:-1:2].min() else output[2] + 1
    folder.replace_rows([replace(row, output=output)])
    rescore(folder)
    accuracy = EvaluationFolder.open(folder.path).summary.accuracy
    assert (accuracy.num_puzzles, accuracy.num_solved) == (1, 0)
