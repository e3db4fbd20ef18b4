"""Tests of the token streams of the trace page and their sources."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from data.model_format.precision import get_precision
from data.page.render import render_page, script_json
from eval.commands.trace import Config, main
from eval.engines.contract import FinishReason
from eval.inspect.streams import Stream, first_difference, model_stream, solver_stream
from eval.results.records import SampledPuzzle
from eval.trace_page import sources
from eval.trace_page.build import trace_page
from eval.trace_page.sources import attempt_of_evaluation
from solver.mrv.tracer import trace
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from solver.vocabulary import END_OUTPUT, END_SUMMARY, SUMMARY, Tokens
from tests.eval.evaluations import write_evaluation
from tests.eval.toy_models import export, make_model

PUZZLE = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
SMALL = ".51.........6...4.....5....23...6..."


def data_of(page: str) -> dict[str, Any]:
    block = re.search(r'<script type="application/json" id="trace-data">(.*?)</script>', page)
    assert block is not None
    data: dict[str, Any] = json.loads(block[1])
    return data


def test_solver_stream_is_the_cot_with_summaries_put_in() -> None:
    board, givens = parse_puzzle(PUZZLE)
    cot = solver_stream(board, givens, segment_tokens=None)
    assert (cot.ids == trace(board, givens).tokens).all()
    scot = solver_stream(board, givens, segment_tokens=512)
    starts, ends = np.flatnonzero(scot.ids == SUMMARY), np.flatnonzero(scot.ids == END_SUMMARY)
    assert len(starts) == len(ends) > 0
    inside = np.zeros(len(scot.ids), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        inside[start : end + 1] = True
    assert (scot.ids[~inside] == cot.ids).all()


def test_puzzles_without_a_trace_to_show_are_refused() -> None:
    board, conflict = parse_puzzle("11..|....|....|....")
    with pytest.raises(ValueError, match="givens conflict"):
        solver_stream(board, conflict, segment_tokens=None)
    _, unsolvable = parse_puzzle("123.|....|...4|....")
    assert solver_stream(board, unsolvable, segment_tokens=None).finish_reason == "unsolvable"
    with pytest.raises(ValueError, match="unsolvable, segments need a solved one"):
        solver_stream(board, unsolvable, segment_tokens=8)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [5], 0)],
)
def test_first_difference(first: list[int], second: list[int], expected: int | None) -> None:
    assert first_difference(np.array(first, np.uint8), np.array(second, np.uint8)) == expected


def test_page_stores_shared_ids_once_within_the_limit() -> None:
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=512)
    ids = solver.ids.copy()
    ids[700] = END_OUTPUT
    model = Stream(name="m", ids=ids[:900], finish_reason="malformed")
    data = data_of(trace_page(board, givens, solver=solver, model=model, max_tokens=800))
    assert data["difference"] == 700
    streams = data["streams"]
    assert [(s["total"], s["shared"]) for s in streams] == [(len(solver.ids), 0), (900, 700)]
    assert base64.b64decode(streams[0]["ids"]) == solver.ids[:800].tobytes()
    assert base64.b64decode(streams[1]["ids"]) == ids[700:800].tobytes()
    cut = data_of(trace_page(board, givens, solver=solver, model=model, max_tokens=500))
    assert cut["streams"][1] | {"ids": ""} == streams[1] | {"shared": 500, "ids": ""}
    with pytest.raises(ValueError, match="max_tokens: got 0"):
        trace_page(board, givens, solver=solver, max_tokens=0)


def write_kept(folder: Path) -> dict[str, tuple[Tokens, ...]]:
    """An evaluation of two puzzles with kept tokens: solved, and failed halfway."""
    kept: dict[str, tuple[Tokens, ...]] = {}
    puzzles = []
    for text, is_solved in ((PUZZLE, True), ("." + PUZZLE[1:], False)):
        board, givens = parse_puzzle(text)
        ids = trace(board, givens).tokens
        key = f"{puzzle_id(board, givens[np.newaxis])[0]:016x}"
        generated = ids[2 * np.count_nonzero(givens) + 2 :]
        kept[key] = (generated if is_solved else generated[:50],)
        puzzles.append(
            SampledPuzzle(
                key=key,
                givens=format_grid(board, givens),
                cot_length=256 if is_solved else 16_384,
                rating=None,
                groups={},
            )
        )
    write_evaluation(
        folder,
        name="<i>m</i>",
        mode="cot",
        solve_rates=(1, 1, 1, 1, 1, 1, 0),
        failures={FinishReason.TOTAL_CAP: 1.0},
        segments=kept,
        puzzles=puzzles,
    )
    return kept


def test_evaluation_gives_its_failure_or_the_puzzle_asked_for(tmp_path: Path) -> None:
    kept = write_kept(tmp_path / "e")
    solved_key, failed_key = kept
    failure = attempt_of_evaluation(tmp_path / "e", puzzle=None)
    assert failure.finish_reason == "total_cap"
    assert (failure.segments[0] == kept[failed_key][0]).all()
    for name in (PUZZLE, solved_key):
        attempt = attempt_of_evaluation(tmp_path / "e", puzzle=name)
        assert attempt.finish_reason == "solved"
        solver = solver_stream(attempt.board, attempt.givens, segment_tokens=None)
        model = model_stream(
            attempt.givens,
            solver=solver,
            segments=attempt.segments,
            name="m",
            finish_reason="solved",
        )
        assert first_difference(solver.ids, model.ids) is None
    with pytest.raises(ValueError, match="no result for the puzzle"):
        attempt_of_evaluation(tmp_path / "e", puzzle="1" + "." * 80)
    write_evaluation(tmp_path / "bare")
    with pytest.raises(ValueError, match="its tokens were not stored"):
        attempt_of_evaluation(tmp_path / "bare", puzzle=None)
    write_evaluation(tmp_path / "none", num_results=0)
    with pytest.raises(ValueError, match="no puzzle has a result yet"):
        attempt_of_evaluation(tmp_path / "none", puzzle=None)


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kept(tmp_path / "e")
    out = tmp_path / "page.html"
    assert main(Config(evaluation=tmp_path / "e", out=out)) == 0
    assert "deviates from the solver's trace at token" in capsys.readouterr().out
    assert "<i>m" not in out.read_text()
    assert "&lt;i&gt;m" in out.read_text()
    hint = "<code>sudocot trace PUZZLE --model FOLDER</code>"  # an evaluation has no probabilities
    assert hint in out.read_text()
    assert main(Config(puzzle=PUZZLE, evaluation=tmp_path / "e", out=out)) == 0
    assert "the model follows the solver's trace" in capsys.readouterr().out
    assert main(Config(puzzle=SMALL, segment_tokens=32, out=out)) == 0
    assert data_of(out.read_text())["boxCols"] == 3
    assert hint not in out.read_text()


def test_command_lets_a_model_solve_the_puzzle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = export(make_model("llama"), tmp_path / "model")
    out = tmp_path / "page.html"
    assert main(Config(puzzle="..1.4......2.3..", model=model, out=out)) == 0
    assert "deviates from the solver's trace at token" in capsys.readouterr().out
    data = data_of(out.read_text())
    assert [stream["name"] for stream in data["streams"]] == ["solver", "model"]
    # Greedy decoding: no other token is likelier than the generated one.
    packed = data["probabilities"]
    token, other = (
        np.frombuffer(base64.b64decode(packed[name]), np.uint8)
        for name in ("token", "otherProbability")
    )
    num_generated = data["streams"][1]["total"] - 2 * np.count_nonzero(data["givens"]) - 2
    assert len(token) == len(other) == num_generated
    assert (token >= other).all()
    assert 0 < token.max() < 255
    with pytest.raises(ValueError, match=r"got a 6x6 board, the model's is 4x4"):
        main(Config(puzzle=SMALL, model=model, out=out))


def test_the_engine_is_closed_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = mock.Mock()
    engine.decode.side_effect = FloatingPointError("not finite")
    monkeypatch.setattr(sources, "make_engine", lambda *_, **__: engine)
    board, givens = parse_puzzle("1...|..3.|.4..|...2")
    with pytest.raises(FloatingPointError, match="not finite"):
        sources.attempt_of_model(
            export(make_model("llama"), tmp_path / "model"),
            board,
            givens,
            engine=None,
            precision=get_precision("fp32"),
            max_register_tokens=0,
            max_tokens=0,
        )
    engine.close.assert_called_once_with()


def test_what_cannot_be_shown_is_refused_before_a_model_decodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "make_engine", mock.Mock(side_effect=AssertionError))
    model, page = export(make_model("llama"), tmp_path / "model"), tmp_path / "notes.html"
    with pytest.raises(ValueError, match="givens conflict"):
        main(Config(puzzle="11..............", model=model, out=page))
    page.write_text("mine")
    with pytest.raises(FileExistsError, match="was not made by sudocot"):
        main(Config(puzzle="..1.4......2.3..", model=model, out=page))


def test_wrong_options_are_named(tmp_path: Path) -> None:
    page, folder = tmp_path / "p.html", tmp_path
    for options, message in (
        ({}, "puzzle: got none"),
        ({"puzzle": SMALL, "model": folder, "evaluation": folder}, "only one of them is allowed"),
        ({"puzzle": SMALL, "segment_tokens": 0}, "segment_tokens: got 0"),
        ({"puzzle": SMALL, "max_page_tokens": 0}, "max_page_tokens: got 0"),
        ({"puzzle": SMALL, "model": folder, "segment_tokens": 8}, "not allowed with --model"),
        ({"puzzle": SMALL, "board": "5x5"}, "board '5x5'"),
        ({"evaluation": folder, "board": "4x4"}, "board: not allowed with --evaluation"),
        ({"puzzle": SMALL, "precision": "bf16"}, "precision: got bf16, allowed without --model"),
        ({"evaluation": folder, "engine": "hf"}, "engine: got hf, not allowed without --model"),
    ):
        with pytest.raises(ValueError, match=message):
            Config(out=page, **options)


def test_script_data_cannot_end_its_block() -> None:
    text = script_json({"name": "</script><!--&"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"name": "</script><!--&"}


def test_pages_allow_their_own_scripts_and_nothing_else() -> None:
    board, givens = parse_puzzle(SMALL)
    page = trace_page(board, givens, solver=solver_stream(board, givens, segment_tokens=None))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "script-src 'sha256-" in policy[1].replace("&#39;", "'")
    assert not re.search(r'(src|href)="(?!data:,)', page)
    with pytest.raises(FileNotFoundError, match="no template, style or script missing"):
        render_page("eval.trace_page", "missing.html.j2")
