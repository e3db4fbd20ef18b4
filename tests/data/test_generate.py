"""Tests of generated files: content, CoT lengths, independence of the number of workers."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from data.commands import generate as generate_command
from data.puzzle_sources import generate as module
from data.puzzle_sources.generate import GenerateConfig, generate, generate_file
from data.runtime.locks import locked_output
from data.runtime.signals import StopRequested
from scripts.cli.main import main
from solver.boards import get_board, is_solution
from solver.generation.counting import count_solutions
from solver.generation.generator import generate_puzzles
from solver.generation.sparse import DEFAULT_MAX_COT_LENGTH
from solver.mrv.tracer import cot_length, trace
from solver.puzzles import parse_puzzle, read_puzzles
from solver.symmetry.canonical import canonical_forms

SIX = GenerateConfig(board="6x6", seed=3)
MINED = GenerateConfig(board="6x6", seed=3, min_cot_length=180, max_cot_length=260)


@pytest.mark.parametrize("ending", module.FORMATS)
def test_files_read_back_as_puzzles_of_the_seed(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"puzzles{ending}"
    assert generate_file(out, count=40, config=SIX, workers=2) == 40
    reader = read_puzzles(out)
    (block,) = reader
    board = reader.board
    grids, solutions = generate_puzzles(board, seed=3, start=0, count=40)
    assert board.name == "6x6"
    assert np.array_equal(block.grids, grids)
    if ending == ".txt":
        assert not block.answers.any()
        return
    assert np.array_equal(block.answers, solutions)
    for grid, answer in zip(block.grids[:5], block.answers, strict=False):
        assert is_solution(board, grid=answer, givens=grid)
        assert count_solutions(board, grid) == 1


def test_columns_have_length_and_number(tmp_path: Path) -> None:
    generate_file(tmp_path / "a.parquet", count=20, config=SIX)
    generate_file(tmp_path / "a.csv", count=20, config=SIX)
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines == ["question,answer,cot_length,number"] + [
        ",".join(map(str, row.values())) for row in rows
    ]
    (block,) = read_puzzles(tmp_path / "a.csv")
    lengths = [cot_length(get_board("6x6"), grid) for grid in block.grids]
    assert [row["cot_length"] for row in rows] == lengths
    assert [row["number"] for row in rows] == list(range(20))


def test_mined_puzzles_have_the_target_lengths() -> None:
    board = get_board("6x6")
    puzzles = list(itertools.islice(generate(MINED, workers=3), 12))
    assert puzzles == list(itertools.islice(generate(MINED), 12))
    for puzzle in puzzles:
        _, grid = parse_puzzle(puzzle.question)
        assert 180 <= puzzle.cot_length <= 260  # type: ignore[operator]
        assert cot_length(board, grid) == puzzle.cot_length
        assert count_solutions(board, grid) == 1
    numbers = [puzzle.number for puzzle in puzzles]
    assert numbers == sorted(set(numbers))


def test_distinct_puzzles_are_the_first_of_each_class_under_symmetry() -> None:
    board = get_board("4x4")
    config = GenerateConfig(board="4x4", seed=5)
    puzzles = list(itertools.islice(generate(config), 200))
    forms = [
        canonical_forms(board, parse_puzzle(puzzle.question)[1][None]).tobytes()
        for puzzle in puzzles
    ]
    first = [puzzle for k, puzzle in enumerate(puzzles) if forms[k] not in forms[:k]]
    assert 1 < len(first) < len(puzzles)
    distinct = generate(dataclasses.replace(config, distinct=True, patience=10**6), workers=3)
    assert list(itertools.islice(distinct, len(first))) == first


def test_distinct_ends_when_there_are_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are few minimal 4x4 puzzles up to symmetry."""
    distinct = GenerateConfig(board="4x4", distinct=True, patience=400)
    config = generate_command.Config(count=1000, out=tmp_path / "a.txt", puzzles=distinct)
    assert generate_command.main(config) == 1
    printed = capsys.readouterr().out
    assert "400 puzzles in a row were equivalent to an earlier one" in printed
    num_puzzles = len((tmp_path / "a.txt").read_text().splitlines())
    assert f"{num_puzzles} puzzles, {1000 - num_puzzles} fewer" in printed


def test_one_bound_sets_the_other() -> None:
    assert GenerateConfig(min_cot_length=300).lengths == (300, 600)
    assert GenerateConfig(max_cot_length=300).lengths == (1, 300)
    assert GenerateConfig().lengths is None


def test_length_over_the_limit_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of 16x16 puzzles can be endless; the puzzles are none the worse."""
    monkeypatch.setattr(module, "cot_length", lambda *_: None)
    generate_file(tmp_path / "a.csv", count=2, config=SIX)
    assert (tmp_path / "a.csv").read_text().splitlines()[1].endswith(",,0")
    generate_file(tmp_path / "a.parquet", count=2, config=SIX)
    assert pq.read_table(tmp_path / "a.parquet")["cot_length"].to_pylist() == [None, None]


@pytest.mark.parametrize("ending", module.FORMATS)
def test_bytes_do_not_depend_on_the_workers(tmp_path: Path, ending: str) -> None:
    config = GenerateConfig(board="6x6", seed=5)
    for workers in (1, 3):
        generate_file(tmp_path / f"w{workers}{ending}", count=50, config=config, workers=workers)
    assert (tmp_path / f"w1{ending}").read_bytes() == (tmp_path / f"w3{ending}").read_bytes()
    other = GenerateConfig(board="6x6", seed=6)
    generate_file(tmp_path / f"w1{ending}", count=50, config=other, rebuild=True)
    assert (tmp_path / f"w1{ending}").read_bytes() != (tmp_path / f"w3{ending}").read_bytes()


def test_extra_givens_are_added(tmp_path: Path) -> None:
    counts = []
    for extra in (0, 4):
        config = GenerateConfig(board="6x6", extra_givens=extra)
        generate_file(tmp_path / f"{extra}.txt", count=10, config=config)
        (block,) = read_puzzles(tmp_path / f"{extra}.txt")
        counts.append(np.count_nonzero(block.grids, axis=1))
    assert (counts[1] - counts[0] == 4).all()


def test_patience_ends_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length that no puzzle has must not keep the command running for ever."""
    impossible = GenerateConfig(board="4x4", min_cot_length=1000, patience=3)
    with pytest.raises(
        ValueError, match=r"patience: at least 3 puzzles in a row have no CoT of 1,000"
    ):
        generate_file(tmp_path / "a.txt", count=1, config=impossible)
    few = GenerateConfig(board="4x4", givens=(3, 7), min_cot_length=1000, patience=3)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_sparse", lambda *_, **__: [])
        with pytest.raises(ValueError, match=r"1,000 to 2,000 tokens; set other lengths, other"):
            generate_file(tmp_path / "a.txt", count=1, config=few)
        any_length = dataclasses.replace(few, min_cot_length=None)
        with pytest.raises(ValueError, match=r"in a row have no CoT of 0 to 4,096 tokens"):
            generate_file(tmp_path / "a.txt", count=1, config=any_length)
    assert not list(tmp_path.iterdir())
    first, second, third = itertools.islice(generate(SIX), 3)
    blocks = {0: [first], 2: [second], 6: [third]}
    with monkeypatch.context() as patch:
        patch.setattr(module, "_mined", lambda _, start, *__, **___: blocks.get(start, []))
        config = generate_command.Config(
            count=9, out=tmp_path / "a.txt", puzzles=dataclasses.replace(MINED, patience=3)
        )
        assert generate_command.main(config) == 1
    assert (
        "2 puzzles, 7 fewer than requested: 3 mined puzzles in a row missed the target lengths\n"
    ) in capsys.readouterr().out
    assert len((tmp_path / "a.txt").read_text().splitlines()) == 2
    with monkeypatch.context() as patch:
        patch.setattr(module, "_sparse", lambda _, start, *__, **___: [first][: start == 0])
        config = generate_command.Config(count=2, out=tmp_path / "b.txt", puzzles=few)
        assert generate_command.main(config) == 1
    assert "1 puzzle, 1 fewer than requested: 3 puzzles in a row" in capsys.readouterr().out


@pytest.mark.parametrize("ending", module.FORMATS)
def test_an_interrupt_keeps_what_is_finished_unless_it_would_replace_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    whole, out = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    puzzles = list(itertools.islice(generate(SIX), 3))
    generate_file(whole, count=2, config=SIX)

    def mine(_: object, start: int, *__: object, **___: object) -> list[module.Puzzle]:
        if start == num_finished:
            raise KeyboardInterrupt
        return puzzles[start : start + 1]

    monkeypatch.setattr(module, "_mined", mine)
    num_finished = 2
    with pytest.raises(KeyboardInterrupt, match="has the first 2 of 9 puzzles; another --seed"):
        generate_file(out, count=9, config=MINED)
    assert out.read_bytes() == whole.read_bytes()
    num_finished = 1
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        generate_file(out, count=9, config=MINED, rebuild=True)
    assert out.read_bytes() == whole.read_bytes()
    num_finished = 0
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        generate_file(tmp_path / f"none{ending}", count=9, config=MINED)
    assert sorted(tmp_path.iterdir()) == sorted([whole, out])


def test_a_signal_of_a_batch_system_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puzzles, out = list(itertools.islice(generate(SIX), 2)), tmp_path / "a.csv"

    def mine(_: object, start: int, *__: object, **___: object) -> list[module.Puzzle]:
        if start == len(puzzles):
            signal.raise_signal(signal.SIGTERM)
        return puzzles[start : start + 1]

    monkeypatch.setattr(module, "_mined", mine)
    config = generate_command.Config(count=9, out=out, puzzles=MINED, workers=1)
    with pytest.raises(KeyboardInterrupt, match=r"has the first [12] of 9 puzzles"):
        generate_command.main(config)  # threads generate ahead
    assert len(out.read_text().splitlines()) in (2, 3)


@pytest.mark.parametrize("ending", module.FORMATS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"question,answer\n",
        b"notes of a user\n",
        b"\xff\0",
        b"1.....3..4.....2 # the first one\n",
    ],
)
def test_other_files_are_not_replaced(tmp_path: Path, ending: str, content: bytes) -> None:
    out = tmp_path / f"mine{ending}"
    out.write_bytes(content)
    with pytest.raises(FileExistsError, match="not a file of generated puzzles"):
        generate_file(out, count=1, config=SIX, rebuild=True)
    assert out.read_bytes() == content


def test_full_disk_leaves_nothing_and_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.csv"
    generate_file(out, count=5, config=SIX)
    before = out.read_bytes()
    with pytest.raises(FileExistsError, match="--rebuild"):
        generate_file(out, count=6, config=SIX)

    def fail(path: Path, *_: Any) -> int:
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", fail)
        with pytest.raises(OSError, match="No space left"):
            generate_file(out, count=6, config=SIX, rebuild=True)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("rebuild", "message"), [(False, "exists; --rebuild"), (True, "not a file of generated")]
)
def test_a_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuild: bool, message: str
) -> None:
    out = tmp_path / "a.csv"
    write = module._write

    def write_beside(path: Path, *rest: Any) -> Generator[int]:
        out.write_text("notes of a user\n")
        return write(path, *rest)

    monkeypatch.setattr(module, "_write", write_beside)
    with pytest.raises(FileExistsError, match=message):
        generate_file(out, count=2, config=SIX, rebuild=rebuild)
    assert out.read_text() == "notes of a user\n"
    assert list(tmp_path.iterdir()) == [out]


def test_one_process_at_a_time_generates(tmp_path: Path) -> None:
    out = tmp_path / "folder" / "a.csv"
    with locked_output(out), pytest.raises(ValueError, match="another process is writing"):
        generate_file(out, count=2, config=SIX)
    assert generate_file(out, count=2, config=SIX) == 2


def test_help_states_the_default_limit_of_few_givens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "generate", "--help-all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"more than {DEFAULT_MAX_COT_LENGTH:,} tokens are rejected" in shown


def test_command_prints_the_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "folder" / "a.txt"
    assert generate_command.main(generate_command.Config(count=3, out=out, puzzles=SIX)) == 0
    assert capsys.readouterr().out == f"{out}: 3 puzzles\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count: got 0"),
        ({"workers": 0}, "workers: got 0"),
        ({"out": Path("a.json")}, r"out: got a\.json, allowed endings are \.csv"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_command.Config(**{"count": 1, "out": Path("a.txt"), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"board": "5x5"}, "5x5"),
        ({"seed": -1}, "seed: got -1"),
        ({"extra_givens": -1}, "extra_givens: got -1"),
        ({"min_cot_length": 0}, "min_cot_length: got 0"),
        ({"min_cot_length": 9, "max_cot_length": 8}, "max_cot_length: got 8"),
        ({"patience": 0}, "patience: got 0"),
        ({"min_cot_length": 9, "extra_givens": 1}, "extra_givens: not allowed with CoT"),
    ],
)
def test_bad_choices_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerateConfig(**options)
    with pytest.raises(ValueError, match="out: got ending"):
        generate_file(Path("a.json"), count=1, config=SIX)


def test_few_givens_make_traces_branch(tmp_path: Path) -> None:
    config = GenerateConfig(board="4x4", givens=(3, 6), min_cot_length=76, max_cot_length=100)
    assert generate_file(tmp_path / "sparse.csv", count=20, config=config, workers=2) == 20
    (block,) = read_puzzles(tmp_path / "sparse.csv")
    for grid, answer in zip(block.grids, block.answers, strict=True):
        assert 3 <= np.count_nonzero(grid) <= 6
        result = trace(get_board("4x4"), grid)
        assert 76 <= len(result.tokens) <= 100
        assert result.solution is not None
        assert np.array_equal(result.solution, answer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"givens": (6, 3)}, "givens: got 6 3, allowed are 0 to 16"),
        ({"givens": (3, 6), "extra_givens": 1}, "extra_givens: not allowed with givens"),
    ],
)
def test_wrong_givens_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerateConfig(board="4x4", **options)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopRequested("SIGTERM")])
def test_an_interrupt_while_a_puzzle_is_written_keeps_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    out, write = tmp_path / "a.csv", module._write

    def interrupted(*arguments: Any) -> Iterator[int]:
        with contextlib.closing(write(*arguments)) as numbers:
            for k, number in enumerate(numbers):
                yield number
                if k == 2:
                    raise error

    monkeypatch.setattr(module, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt, match="has the first 3 of 9 puzzles"):
        generate_file(out, count=9, config=SIX)
    assert len(out.read_text().splitlines()) == 4
