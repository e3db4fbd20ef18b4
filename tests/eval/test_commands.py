"""Tests of `sudocot eval` on a model with random weights."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.commands import run as run_command
from eval.engines.contract import Request, Result
from eval.results.folder import SUMMARY_FILE, EvaluationFolder
from scripts.cli.main import main
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.fake_engine import FakeEngine
from tests.eval.toy_models import export, make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(make_model("llama"), tmp_path_factory.mktemp("models") / "final")


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("list") / "test.csv", make_puzzles("4x4", 12))


@pytest.fixture
def solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is the solver, with some failures."""
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: FakeEngine())


def words(model: Path, puzzles: Path, out: Path, *options: str) -> list[str]:
    paths = ["--model", str(model), "--data", str(puzzles), "--out", str(out)]
    return ["eval", "run", *paths, "--device", "cpu", *options]


def test_a_model_is_evaluated_and_the_same_command_finds_it_done(
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_command, "code_commit", lambda: "0123-dirty")
    out = tmp_path / "evals" / "e"
    options = ("--num-slots", "4", "--count", "7", "--keep-tokens", "--name", "toy [x]")
    assert main(words(model, puzzles, out, *options)) == 0
    printed = capsys.readouterr().out
    assert "95% Wilson interval" in printed
    assert "toy [x] on test.csv" in printed
    assert (tmp_path / "evals" / "test.csv.lengths.parquet").is_file()
    folder = EvaluationFolder.open(out)
    config = folder.config
    assert folder.is_complete
    assert (config.num_sampled, config.engine, config.mode) == (7, "segment", "scot")
    assert (config.caps.max_new_tokens, config.caps.max_segment_tokens) == (5_000_000, 2048)
    assert config.model.num_parameters == sum(p.numel() for p in make_model("llama").parameters())
    assert config.model.digest == json.loads((model / "sudocot.json").read_text())["weights_digest"]
    [session] = config.sessions
    assert {"python", "sudocot", "torch"} <= session.versions.keys()
    assert session.versions["commit"] == "0123-dirty"
    assert session.num_replicas == 1
    assert config.precision.as_dict()["cache"] == "fp32"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(words(model, puzzles, out, *options)) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert main(words(model, puzzles, out, *options[:-2], "--name", "other")) == 2
    assert "differs in model.name (toy [x], got other)" in capsys.readouterr().err
    assert main(["eval", "score", str(out)]) == 0


@pytest.mark.usefixtures("solver")
def test_columns_of_a_list_are_named(
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    solver: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "test.csv"
    table.write_text(puzzles.read_text().replace("question,answer", "task,result"))
    out = tmp_path / "e"
    columns = ["--puzzle-column", "task", "--answer-column", "result"]
    assert main(words(model, table, out, "--sample", "all")) == 2
    assert "no puzzle column in 'source', 'task', 'result', 'rating'" in capsys.readouterr().err
    assert main(words(model, table, out, "--sample", "all", *columns)) == 0
    folder = EvaluationFolder.open(out)
    assert len(folder.sample) == 12
    assert (folder.config.data.puzzle_column, folder.config.data.answer_column) == (
        "task",
        "result",
    )
    # The CoT length table belongs to the columns.
    (lengths,) = tmp_path.glob("*.lengths.parquet")
    listed = ["eval", "cohorts", "--data", str(table), "--lengths", str(lengths)]
    assert main([*listed, *columns]) == 0
    assert main([*listed, *columns[:2]]) == 2
    assert "is the table of other columns of the list" in capsys.readouterr().err


def test_cohorts_of_a_list_without_a_default_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No power of two lies between the shortest and the longest CoT, here both of 68 tokens."""
    table, lengths = tmp_path / "one.csv", tmp_path / "one.parquet"
    table.write_text("puzzle\n1.....3..4.....2\n")
    assert main(["data", "lengths", str(table), "--out", str(lengths)]) == 0
    capsys.readouterr()
    assert main(["eval", "cohorts", "--data", str(table), "--lengths", str(lengths)]) == 0
    shown = capsys.readouterr().out
    assert "one.csv" in shown
    assert "targets" not in shown


def test_columns_of_a_data_set_are_refused(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "build", str(puzzles), "--out", str(tmp_path / "d")]) == 0
    assert main(words(model, tmp_path / "d", tmp_path / "e", "--puzzle-column", "question")) == 2
    assert "d: a data set; column names are allowed for a table only" in capsys.readouterr().err


def test_parts_are_made_and_merged(model: Path, puzzles: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "e"
    assert main(words(model, puzzles, whole, "--sample", "all")) == 0
    lengths = tmp_path / "test.csv.lengths.parquet"
    for index in range(2):
        options = ("--sample", "all", "--shard", f"{index}/2", "--lengths", str(lengths))
        assert main(words(model, puzzles, out, *options)) == 0
    assert main(["eval", "merge", str(out)]) == 0
    ours, theirs = EvaluationFolder.open(out), EvaluationFolder.open(whole)
    assert [row.key for row in ours.rows] == [row.key for row in theirs.rows]
    assert ours.summary.accuracy == theirs.summary.accuracy
    assert [session.part for session in ours.config.sessions] == ["0/2", "1/2"]


@pytest.mark.usefixtures("solver")
def test_a_part_needs_a_table_of_lengths(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(model, puzzles, tmp_path / "e", "--shard", "0/2")) == 2
    assert "create it first with `sudocot data lengths`" in capsys.readouterr().err


@pytest.mark.usefixtures("solver")
def test_the_hardest_get_more_tokens_and_targets_are_shown(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(model, puzzles, tmp_path / "h", "--sample", "hardest", "--count", "2")) == 0
    assert EvaluationFolder.open(tmp_path / "h").config.caps.max_new_tokens == 15_000_000
    options = ("--sample", "targets", "--targets", "70", "5000", "--mode", "cot")
    assert main(words(model, puzzles, tmp_path / "t", *options)) == 0
    config = EvaluationFolder.open(tmp_path / "t").config
    assert config.caps.max_segment_tokens == config.caps.max_new_tokens == 32_512
    assert "sparse" in capsys.readouterr().out


@pytest.mark.usefixtures("solver")
def test_a_list_of_many_files_gets_a_table_of_lengths(model: Path, tmp_path: Path) -> None:
    """The name of the table was made of all their names, longer than a name can be."""
    puzzles = make_puzzles("4x4", 12)
    names = [f"{'long' * 10}-{k:05}-of-00012.csv" for k in range(12)]
    files = [str(write_csv(tmp_path / name, [puzzles[k]])) for k, name in enumerate(names)]
    out = tmp_path / "evals" / "e"
    assert main(["eval", "run", "--model", str(model), "--data", *files, "--out", str(out)]) == 0
    [table] = out.parent.glob("*.lengths.parquet")
    assert table.name.startswith(f"{names[0]}+{names[1]}+")


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("option", ["--max-new-tokens", "--max-segment-tokens"])
def test_no_tokens_are_refused(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """0 was taken for the default: 5 million."""
    assert main(words(model, puzzles, tmp_path / "e", option, "0")) == 2
    assert "tokens: got 0, allowed is 1 to" in capsys.readouterr().err


class EndingEngine(FakeEngine):
    """Ends in a chosen way after three puzzles."""

    def __init__(self, ending: BaseException | signal.Signals) -> None:
        super().__init__()
        self._ending = ending

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        for count, result in enumerate(super().decode(requests)):
            if count == 3:
                if isinstance(self._ending, signal.Signals):
                    os.kill(os.getpid(), self._ending)
                else:
                    raise self._ending
            yield result


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (signal.SIGTERM, 75, "stopped by SIGTERM; repeat the command to resume"),
        (signal.SIGUSR1, 75, "stopped by SIGUSR1"),
        (KeyboardInterrupt(), 130, "finished puzzles are kept"),
        (FloatingPointError("puzzle 12: logits are not finite"), 1, "logits are not finite"),
        (OSError(28, "No space left on device", "results.jsonl"), 2, "No space left"),
    ],
    ids=str,
)
def test_endings_keep_what_is_done(
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    ending: Any,
    code: int,
    said: str,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: EndingEngine(ending))
    assert main(words(model, puzzles, tmp_path / "e", "--sample", "all")) == code
    assert said in capsys.readouterr().err + caplog.text
    assert len(EvaluationFolder.open(tmp_path / "e").rows) == 3
    assert not (tmp_path / "e" / SUMMARY_FILE).exists()
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: FakeEngine())
    assert main(words(model, puzzles, tmp_path / "e", "--sample", "all")) == 0
    folder = EvaluationFolder.open(tmp_path / "e")
    assert folder.is_complete
    assert len(folder.config.sessions) == 2


@pytest.mark.parametrize(
    ("engine", "number", "message"),
    [
        ("segment", "2", "data_parallel: got 2, allowed with engine segment is 1"),
        ("vllm", "0", "data_parallel: got 0, allowed is 1 to 64"),
    ],
)
def test_replicas_are_for_vllm(
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    engine: str,
    number: str,
    message: str,
) -> None:
    options = ("--engine", engine, "--data-parallel", number)
    assert main(words(model, puzzles, tmp_path / "e", *options)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "e").exists()


TEXT, IDS = (("--engine", "hf", "--protocol", protocol) for protocol in ("text", "ids"))


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        (TEXT, ("--keep-tokens",), "keep_tokens: got True, not allowed with the text protocol"),
        (TEXT, ("--mode", "cot"), "mode: got cot, allowed with the text protocol is the default"),
        (
            TEXT,
            ("--max-segment-tokens", "9"),
            "max_segment_tokens: got 9, not allowed with the",
        ),
        (IDS, ("--shots", "1"), "shots: got 1, allowed with token ids is the default, 0"),
        (IDS, ("--temperature", "0"), "temperature: got 0.0, not allowed with token ids"),
        (IDS, ("--prompt-form", "chat"), "prompt_form: got chat, allowed with token ids is the"),
        ((), ("--base-url", "http://host/v1"), "base_url: got http://host/v1, not allowed with"),
        (
            (),
            ("--price-in", "2"),
            "price_in: got 2.0, allowed with engine segment is the default, 0.0",
        ),
    ],
)
def test_options_of_another_protocol_or_engine_are_refused(
    engine: tuple[str, ...],
    options: tuple[str, ...],
    message: str,
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(words(model, puzzles, tmp_path / "e", *engine, *options)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "e").exists()


def test_a_missing_library_and_another_board_are_one_line(
    model: Path,
    puzzles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("No module named 'vllm'")

    monkeypatch.setattr(run_command, "load_engine", missing)
    assert main(words(model, puzzles, tmp_path / "e")) == 2
    assert "engine: segment is not installed" in capsys.readouterr().err
    other = write_csv(tmp_path / "six.csv", make_puzzles("6x6", 2))
    assert main(words(model, other, tmp_path / "e")) == 2
    assert "data: got 6x6 puzzles, allowed are 4x4" in capsys.readouterr().err
    assert not list(tmp_path.glob("six*parquet")), "a table of the wrong board was kept"
    for options, message in ((("--num-slots", "0"), "num_slots"), (("--shard", "3"), "shard")):
        assert main(words(model, puzzles, tmp_path / "e", *options)) == 2
        assert message in capsys.readouterr().err
