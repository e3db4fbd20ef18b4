"""Tests of CoT length tables: one row per input row, and deterministic bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.commands import lengths as lengths_command
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig, measure_puzzles
from data.lengths.table import LengthsTable, RowStatus
from data.segments import split_into_segments
from solver.boards import Board, Grid, get_board
from solver.jit import IS_JIT
from solver.mrv.tracer import trace
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from tests.data.length_tables import CONFIG, files
from tests.data.puzzle_files import write_csv

UNSOLVABLE = "1....." + "3..4....." + "1"


AMBIGUOUS = "1" + "." * 15


CONFLICTING = "11" + "." * 14


MALFORMED = "1!" + "." * 14


LONG_PUZZLE = "..............1..2..3.4..5........4.....6..3..7.2........7..8....4..5...65......7"


def write_rows(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def expected_row(board: Board, grid: Grid, *, segment_tokens: int) -> dict[str, int]:
    result = trace(board, grid)
    cut = split_into_segments(
        board, result.tokens, np.array([len(result.tokens)]), segment_tokens=segment_tokens
    )
    return {
        "puzzle_id": int(puzzle_id(board, grid[None])[0]),
        "cot_length": len(result.tokens),
        "num_segments": len(cut.ends),
        "scot_tokens": len(cut.tokens),
        "scot_loss_tokens": len(cut.tokens) - int(cut.prompt_lengths.sum()),
        "num_assignments": result.num_assignments,
        "num_givens": int(np.count_nonzero(grid)),
    }


@pytest.mark.usefixtures("small_chunks")
def test_rows_equal_the_solver(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    source = files(write_csv(tmp_path / "a.csv", puzzles))
    measure_lengths(source, tmp_path / "out", config=CONFIG)
    board = get_board("4x4")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["row"] for row in rows] == list(range(40))
    for k, (row, (text, _)) in enumerate(zip(rows, puzzles, strict=True)):
        wanted = expected_row(board, parse_puzzle(text)[1], segment_tokens=8)
        assert {name: row[name] for name in wanted} == wanted
        assert (row["status"], row["lower_bound"]) == ("ok", None)
        assert (row["rating"], row["source"], row["is_duplicate"]) == (float(k), "made", False)


def test_every_row_has_a_status_and_nothing_is_made_up(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    good, other = puzzles[0][0], puzzles[1][0]
    listed = [good, MALFORMED, CONFLICTING, UNSOLVABLE, AMBIGUOUS, good, other]
    source = files(write_rows(tmp_path / "a.txt", listed))
    table = measure_lengths(
        source, tmp_path / "out", config=LengthsConfig(segment_tokens=8, check_unique=True)
    )
    labels = [RowStatus(status).label for status in table.statuses]
    assert labels == ["ok", "malformed", "conflict", "unsolvable", "ambiguous", "ok", "ok"]
    assert table.is_duplicate.tolist() == [False] * 5 + [True, False]
    assert table.is_usable.tolist() == [True] + [False] * 5 + [True]
    rows = pq.read_table(tmp_path / "out").to_pylist()
    for row in rows[1:4]:
        for name in ("cot_length", "lower_bound", "num_segments", "scot_tokens"):
            assert row[name] is None
    assert rows[1]["puzzle_id"] is rows[1]["num_givens"] is rows[2]["num_assignments"] is None
    assert rows[3]["num_assignments"] is not None
    assert rows[4]["cot_length"] == len(trace(get_board("4x4"), parse_puzzle(AMBIGUOUS)[1]).tokens)
    assert all(row["rating"] is row["source"] is None for row in rows)
    assert table.cot_lengths[1:4].tolist() == [0, 0, 0]
    assert table.puzzle_ids[1] == 0


def test_capped_puzzle_has_a_bound_and_never_a_length(tmp_path: Path) -> None:
    """The length at which the solver was stopped once passed for the true one."""
    puzzle = "." * 16 + "12..3..4........5.....4.36....1.....78....1......98..3...7....6.."
    board, grid = parse_puzzle(puzzle)
    true_length = len(trace(board, grid).tokens)
    source = files(write_rows(tmp_path / "a.txt", [puzzle]))
    for cap, is_capped in ((50, True), (true_length - 1, True), (true_length, False)):
        table = measure_lengths(
            source, tmp_path / f"cap{cap}", config=LengthsConfig(max_tokens=cap)
        )
        row = pq.read_table(tmp_path / f"cap{cap}").to_pylist()[0]
        assert row["status"] == ("capped" if is_capped else "ok")
        assert row["cot_length"] == (None if is_capped else true_length)
        assert row["lower_bound"] == (cap + 1 if is_capped else None)
        assert row["num_assignments"] is None or not is_capped
        assert table.is_usable.tolist() == [not is_capped]
        assert table.lower_bounds.tolist() == [cap + 1 if is_capped else 0]


@pytest.mark.skipif(not IS_JIT, reason="plain Python would take hours")
def test_traces_of_over_ten_million_tokens_are_exact(tmp_path: Path) -> None:
    board, grid = parse_puzzle(LONG_PUZZLE)
    source = files(write_rows(tmp_path / "a.txt", [LONG_PUZZLE]))
    measure_lengths(source, tmp_path / "out", config=LengthsConfig())
    row = pq.read_table(tmp_path / "out").to_pylist()[0]
    assert row["status"] == "ok"
    wanted = expected_row(board, grid, segment_tokens=512)
    assert wanted["cot_length"] == 16_402_956
    assert {name: row[name] for name in wanted} == wanted
    capped = measure_lengths(
        source, tmp_path / "capped", config=LengthsConfig(max_tokens=10_000_000)
    )
    assert capped.lower_bounds.tolist() == [10_000_001]
    assert not capped.cot_lengths.any()


def test_stated_answers_are_checked(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    board = get_board("4x4")
    (first, answer), (second, other_answer) = puzzles[:2]
    found = trace(board, parse_puzzle(AMBIGUOUS)[1]).solution
    assert found is not None
    swapped = np.array([0, 1, 3, 2, 4], dtype=np.uint8)[found]  # the 1 stays: a second solution
    rows = [(first, answer), (second, answer), (AMBIGUOUS, format_grid(board, swapped))]
    source = files(write_csv(tmp_path / "a.csv", rows))
    table = measure_lengths(source, tmp_path / "out", config=CONFIG)
    assert other_answer != answer
    assert table.statuses.tolist() == [RowStatus.OK, RowStatus.WRONG_ANSWER, RowStatus.AMBIGUOUS]
    assert table.cot_lengths.all(), "the solver's own trace is as long as it is"


def test_uniqueness_can_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data.lengths.measure.MAX_UNIQUENESS_NODES", 1)
    grids = np.zeros((1, 16), dtype=np.uint8)
    config = LengthsConfig(check_unique=True)
    measures = measure_puzzles(get_board("4x4"), grids, answers=grids, config=config)
    assert measures.statuses.tolist() == [RowStatus.UNDECIDED]


def test_rows_are_counted_on_over_several_files(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    bad = [(MALFORMED, "")]
    a = write_csv(tmp_path / "a.csv", [*bad, *puzzles[:3]])
    b = write_csv(tmp_path / "b.csv", [*puzzles[3:5], *bad, *puzzles[:1]])
    table = measure_lengths(files(a, b), tmp_path / "out", config=CONFIG)
    assert pq.read_table(tmp_path / "out")["row"].to_pylist() == list(range(8))
    assert np.flatnonzero(table.statuses == RowStatus.MALFORMED).tolist() == [0, 6]
    assert np.flatnonzero(table.is_duplicate).tolist() == [7]


@pytest.mark.usefixtures("small_chunks")
def test_bytes_do_not_depend_on_the_workers(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    source = files(write_csv(tmp_path / "a.csv", [*puzzles, (MALFORMED, ""), *puzzles[:9]]))
    for workers in (1, 3):
        measure_lengths(source, tmp_path / f"w{workers}", config=CONFIG, workers=workers)
    assert (tmp_path / "w1").read_bytes() == (tmp_path / "w3").read_bytes()
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_strict_stops_before_any_work(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    for bad, message in (
        (MALFORMED, r"a\.csv:4:\d+: "),
        (CONFLICTING, r"a\.csv:4: givens conflict: digit "),
    ):
        source = files(write_csv(tmp_path / "a.csv", [*puzzles[:2], (bad, "")]))
        with pytest.raises(ValueError, match=message):
            measure_lengths(source, tmp_path / "out", config=CONFIG, strict=True)
    assert not list(tmp_path.glob(".out*"))


def test_list_without_a_puzzle(tmp_path: Path) -> None:
    rows = [MALFORMED] * 30
    source = files(write_rows(tmp_path / "a.txt", [*rows, "1" + "." * 15]), board="4x4")
    table = measure_lengths(source, tmp_path / "out", config=CONFIG)
    assert (table.statuses == RowStatus.MALFORMED).sum() == 30


def test_list_without_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("[Solution]\n1234\n3412\n2143\n4321\n")
    with pytest.raises(ValueError, match="puzzle list: got no rows"):
        measure_lengths(files(path), tmp_path / "out", config=CONFIG)
    assert not (tmp_path / "out").exists()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LengthsTable.open(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="not a CoT length table"):
        LengthsTable.open(tmp_path / "text")
    pq.write_table(pa.table({"row": [1]}), tmp_path / "foreign")
    with pytest.raises(ValueError, match="version 1"):
        LengthsTable.open(tmp_path / "foreign")
    schema = pa.schema(
        [("row", pa.int64())], metadata={"sudocot": json.dumps({"schema_version": 9})}
    )
    pq.write_table(pa.table({"row": [1]}, schema=schema), tmp_path / "newer")
    with pytest.raises(ValueError, match="got 9"):
        LengthsTable.open(tmp_path / "newer")


def test_command_prints_counts_that_add_up(
    tmp_path: Path, puzzles: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text for text, _ in puzzles[:5]]
    path = write_rows(tmp_path / "a.txt", [*texts, MALFORMED, CONFLICTING, UNSOLVABLE, texts[0]])
    config = lengths_command.Config(sources=(str(path),), out=tmp_path / "out")
    assert lengths_command.main(config) == 0
    cells = [
        [cell.strip() for cell in line.split("\u2502")[1:3]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("\u2502")
    ]
    assert dict(cells)["ambiguous"].startswith("not checked")
    counts = {name: int(count.replace(",", "")) for name, count in cells if count[0].isdigit()}
    assert counts["read"] == 9
    statuses = [status.label.replace("_", " ") for status in RowStatus]
    assert sum(counts.get(name, 0) for name in statuses) == 9
    assert counts["of these, duplicates"] == 1
    assert counts["ok and no duplicate"] == 5
    assert sum(count for name, count in counts.items() if " to " in name) == 6


def test_command_counts_puzzles_whose_answer_is_another_solution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ("1234341221434321", "1234341243212143")  # the solver finds one of these
    rows = [("12343412" + "." * 8, answer) for answer in answers]
    path = write_csv(tmp_path / "a.csv", rows)
    config = lengths_command.Config(sources=(str(path),), out=tmp_path / "out")
    assert lengths_command.main(config) == 0
    assert "1 by their answers; others not checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ()}, "sources"),
        ({"workers": 0}, "workers"),
        ({"resume": True, "rebuild": True}, "resume and rebuild"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lengths_command.Config(**{"sources": ("a",), "out": Path("b"), **options})
    with pytest.raises(ValueError, match="segment_tokens: got 0"):
        LengthsConfig(segment_tokens=0)
    with pytest.raises(ValueError, match="max_tokens: got 4294967295"):
        LengthsConfig(max_tokens=2**32 - 1)
