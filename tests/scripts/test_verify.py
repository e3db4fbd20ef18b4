"""Tests of `sudocot verify`, and of the commands that rely on files: changed bytes are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.export import export_datasets
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig
from data.lengths.table import LengthsTable
from data.puzzle_sources.sources import GeneratorSource
from data.runtime.resumable import BUILD_FILE
from data.store import TokenStore
from eval.results.folder import (
    RESULTS_FILE,
    SAMPLE_FILE,
    TOKENS_FILE,
    EvaluationFolder,
)
from eval.results.runner import evaluate
from eval.results.score import rescore
from scripts.commands.verify import Config, main, verify
from solver.boards import get_board
from tests.eval.fake_engine import FakeEngine, toy_folder
from tests.training.runs import run, small_config
from tests.training.toy import write_toy_data

SOURCE = GeneratorSource(
    board=get_board("4x4"), count=6, seed=1, extra_givens=2, cot_lengths=None, workers=1
)


def flip(path: Path, where: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * where)] ^= 1
    path.write_bytes(content)


def swap_lines(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))


def drop_output(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["output"] = None
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def test_changed_files_of_a_training_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run_folder = tmp_path / "data", tmp_path / "run"
    write_toy_data(data)
    assert run(small_config(data, run_folder, budget=2_500)) == 0
    final, checkpoints = run_folder / "final", sorted(run_folder.glob("checkpoints/*"))
    assert verify(run_folder) == ("training run", [])
    assert verify(final) == ("model", [])
    intact = tmp_path / "intact"
    shutil.copytree(final, intact)
    flip(checkpoints[0] / "optimizer.pt")
    flip(final / "model.safetensors", 0.99)
    kind, problems = verify(run_folder)
    assert kind == "training run"
    assert [problem.partition(": ")[0] for problem in problems] == [
        str(checkpoints[0]),
        str(final),
    ]
    assert main(Config(paths=(final, intact))) == 1
    assert f"{intact}: model, intact" in capsys.readouterr().out
    assert main(Config(paths=(intact,))) == 0


def test_changed_data_set_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "data"
    build(SOURCE, out, config=BuildConfig())
    assert verify(out) == ("data set", [])
    flip(next(out.glob("*.arrow")))
    with pytest.raises(ValueError, match=r"arrow: damaged, content does not match its digest"):
        TokenStore.open(out)
    assert len(verify(out)[1]) == 1


def test_changed_build_configuration_is_refused(tmp_path: Path) -> None:
    """The manifest has no digest of it, and `data export` publishes it."""
    out = tmp_path / "data"
    build(SOURCE, out, config=BuildConfig())
    flip(out / BUILD_FILE)
    assert [f"{BUILD_FILE}: damaged" in problem for problem in verify(out)[1]] == [True]
    with pytest.raises(ValueError, match=r"build\.json: damaged"):
        export_datasets([out], tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_changed_table_of_lengths_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "lengths.parquet"
    measure_lengths(SOURCE, out, config=LengthsConfig())
    assert verify(out) == ("CoT length table", [])
    content = out.read_bytes()
    for byte in (10, 60, 200):
        flip(out, byte / len(content))
        with pytest.raises(ValueError, match=r"lengths\.parquet: "):
            LengthsTable.open(out)
        out.write_bytes(content)
    LengthsTable.open(out)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (SAMPLE_FILE, flip),
        (SAMPLE_FILE, swap_lines),
        (RESULTS_FILE, flip),
        (RESULTS_FILE, drop_output),
        (TOKENS_FILE, swap_lines),
        (TOKENS_FILE, flip),
    ],
)
def test_changed_evaluation_is_refused(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "e"
    evaluate(toy_folder(path, 4), FakeEngine(), part=None)
    assert verify(path) == ("evaluation", [])
    change(path / name)
    assert verify(path)[1]
    folder = EvaluationFolder.open(path)
    with pytest.raises(ValueError, match=f"{name}: damaged, content does not match its digest"):
        _ = folder.summary, folder.generated(["any"])
    if name != TOKENS_FILE:
        with pytest.raises(ValueError, match=f"{name}: damaged, content does not match its digest"):
            rescore(EvaluationFolder.open(path))


def test_malformed_output_of_an_imported_evaluation_is_named(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "e", 2)
    evaluate(folder, FakeEngine(), part=None)
    folder.write_config(replace(folder.config, mode="grid"))
    row = next(row for row in folder.rows if row.output is not None)
    assert row.output is not None
    cut = replace(row, output=row.output[:-1])
    folder.replace_rows([cut if other is row else other for other in folder.rows])
    folder.finish()
    assert verify(tmp_path / "e") == (
        "evaluation",
        [f"{tmp_path / 'e'}: puzzle {row.key}: malformed output"],
    )


def test_other_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a data set, training run, model or evaluation"):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        verify(tmp_path / "none")
    with pytest.raises(ValueError, match="/dev/null: neither a folder nor a regular file"):
        verify(Path("/dev/null"))
