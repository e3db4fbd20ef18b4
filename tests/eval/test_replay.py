"""Tests of replay: first deviation from the solver, and first difference of two evaluations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.model_format.precision import get_precision
from eval.engines.contract import Caps, Request
from eval.engines.scripted import ScriptedNetwork, solver_script
from eval.engines.segment import SegmentEngine
from eval.inspect.board_state import board_state
from eval.inspect.differences import compare, preference_at
from eval.inspect.replay import preference_of, replay
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from eval.results.folder import CONFIG_FILE, TOKENS_FILE, EvaluationFolder
from eval.results.runner import evaluate
from scripts.cli.main import main
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.puzzles import format_grid
from solver.vocabulary import NONE, Tokens
from tests.eval.evaluations import invented_sample, write_evaluation
from tests.eval.fake_engine import FakeEngine, toy_folder
from tests.eval.toy_models import export, make_model
from tests.solver.test_mrv import full_grid

BOARD = get_board("4x4")
GIVENS = np.array([0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3, 1, 0, 0, 0], dtype=np.uint8)
SEGMENT_TOKENS = 12


def request(mode: str = "scot") -> Request:
    caps = Caps(max_new_tokens=1000, max_segment_tokens=1000)
    return Request(key="a", board=BOARD, givens=GIVENS, mode=mode, caps=caps)  # type: ignore[arg-type]


def network(*, wrong: tuple[int, int] | None, segment_tokens: int | None) -> ScriptedNetwork:
    """The solver, but for token `wrong[1]` of the segment number `wrong[0]`."""
    num_givens = int(np.count_nonzero(GIVENS))
    solver = solver_script(BOARD, num_givens=num_givens, segment_tokens=segment_tokens)
    prompts: list[bytes] = []

    def script(prompt: Tokens) -> Tokens:
        if prompt.tobytes() not in prompts:
            prompts.append(prompt.tobytes())
        answer = solver(prompt).copy()
        if wrong is not None and prompts.index(prompt.tobytes()) == wrong[0]:
            answer[wrong[1]] = NONE
        return answer

    return ScriptedNetwork(BOARD, script, max_positions=300)


@pytest.mark.parametrize("pass_tokens", [1024, 7])
def test_a_model_that_is_the_solver_never_leaves_the_trace(
    pass_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.inspect.replay._PASS_TOKENS", pass_tokens)
    result = replay(network(wrong=None, segment_tokens=None), request("cot"), segment_tokens=None)
    tokens = trace(BOARD, GIVENS).tokens
    assert result.deviation is None
    assert not result.is_cut
    assert result.num_followed == len(tokens) - 2 * np.count_nonzero(GIVENS) - 2
    assert result.least_margin == 1.0
    scot = replay(
        network(wrong=None, segment_tokens=SEGMENT_TOKENS),
        request(),
        segment_tokens=SEGMENT_TOKENS,
    )
    assert scot.num_segments > 2
    assert scot.num_followed > result.num_followed


@pytest.mark.parametrize("pass_tokens", [1024, 7])
@pytest.mark.parametrize("wrong", [(0, 0), (0, 9), (1, 3), (2, 0)])
def test_the_first_wrong_token_is_found(
    wrong: tuple[int, int], pass_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.inspect.replay._PASS_TOKENS", pass_tokens)
    model = network(wrong=wrong, segment_tokens=SEGMENT_TOKENS)
    result = replay(model, request(), segment_tokens=SEGMENT_TOKENS)
    deviation = result.deviation
    assert deviation is not None
    assert (deviation.segment, deviation.position) == wrong
    assert deviation.preference.token == NONE != deviation.solver_token
    assert (deviation.preference.margin, deviation.gap) == (1.0, 1.0)
    assert result.num_segments == wrong[0] + 1
    assert (result.least_margin is None) == (wrong == (0, 0))


def test_a_trace_longer_than_the_model_is_cut() -> None:
    model = network(wrong=None, segment_tokens=None)
    model.max_positions = 40
    result = replay(model, request("cot"), segment_tokens=None)
    assert result.is_cut
    assert result.num_followed == 40 - 2 * np.count_nonzero(GIVENS) - 2
    model.max_positions = 5
    with pytest.raises(ValueError, match="the model's context length is"):
        replay(model, request("cot"), segment_tokens=None)


def test_conflicting_givens_have_no_trace() -> None:
    conflict = replace(request(), givens=np.array([1, 1] + [0] * 14, dtype=np.uint8))
    with pytest.raises(ValueError, match="givens conflict"):
        replay(network(wrong=None, segment_tokens=9), conflict, segment_tokens=9)


def test_equal_logits_prefer_the_smaller_id() -> None:
    preference = preference_of(np.array([0.0, 2.0, 2.0], dtype=np.float32))
    assert (preference.token, preference.runner_up, preference.margin) == (1, 2, 0.0)


@pytest.mark.parametrize("name", ["4x4", "6x6", "9x9"])
def test_boards_in_the_middle_of_a_trace(name: str) -> None:
    """Every prefix of a trace gives digits that do not conflict, and the last one the solution."""
    board, rng = get_board(name), np.random.default_rng(4)
    givens = full_grid(board, rng)
    givens[rng.permutation(board.num_cells)[: board.num_cells * 2 // 3]] = 0
    result = trace(board, givens)
    before_output = len(result.tokens) - 2 * board.num_cells - 2
    for length in range(2 * np.count_nonzero(givens) + 2, min(before_output, 400)):
        state = board_state(board, result.tokens[:length])
        assert (state.grid[givens > 0] == givens[givens > 0]).all()
        for unit in board.units:
            digits = state.grid[unit][state.grid[unit] > 0]
            assert len(set(digits.tolist())) == len(digits)
        if state.cell is None:
            assert (state.grid == givens).all()
        else:
            assert set(state.written) <= set(state.allowed)
            assert givens[state.cell] == 0
    assert result.solution is not None
    last = board_state(board, result.tokens)
    assert last.grid.tolist() == result.solution.tolist()


def test_a_retry_far_below_the_summary_keeps_its_line() -> None:
    """`<summary>` of three lines, then a retry of the first of them."""
    vocabulary = [3, 8, 25, 9, 26, 27, 10, 24, 4, 9, 27]  # (1,1) 2; (1,2) 3 4; (1,3) 1; (1,2) 4
    state = board_state(BOARD, np.array(vocabulary, dtype=np.uint8))
    assert state.grid[:4].tolist() == [2, 4, 0, 0]
    assert state.cell == 1
    assert state.written == (4,)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(make_model("llama"), tmp_path_factory.mktemp("models") / "llama")


def test_equal_evaluations_do_not_differ(tmp_path: Path) -> None:
    folders = [
        evaluate(toy_folder(tmp_path / name, 20), FakeEngine(reverse=name == "b"), part=None)
        for name in "ab"
    ]
    comparison = compare(*folders)
    assert (comparison.num_puzzles, comparison.differences) == (20, ())
    assert comparison.num_tokens == folders[0].summary.num_new_tokens
    assert main(["eval", "replay", str(tmp_path / "a"), str(tmp_path / "b")]) == 0


def test_precisions_are_compared_with_margins(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A random model in fp32 and bf16: some tokens differ, where the margin is small."""
    opened = ModelFolder.open(model)
    folders = []
    for name in ("fp32", "bf16"):
        policy, device = get_precision(name), torch.device("cpu")
        engine = SegmentEngine(Network(opened, precision=policy, device=device), num_slots=4)
        folder = toy_folder(tmp_path / name, 12)
        folder.write_config(replace(folder.config, precision=policy))
        folders.append(evaluate(folder, engine, part=None))
    comparison = compare(*folders)
    assert comparison.settings == ("precision (fp32, got bf16)",)
    assert comparison.differences
    exact = Network(opened, precision=get_precision("fp32"), device=torch.device("cpu"))
    for difference in comparison.differences:
        kept = folders[0].generated([difference.key])[difference.key]
        assert kept[difference.segment][difference.position] == difference.tokens[0]
        preference = preference_at(exact, difference)
        assert preference.token == difference.tokens[0]
        assert 0 <= preference.margin < 0.5
    words = ["eval", "replay", str(tmp_path / "fp32"), str(tmp_path / "bf16")]
    assert main([*words, "--model", str(model), "--limit", "1"]) == 1
    printed = capsys.readouterr().out
    assert f"{len(comparison.differences)} of 12 puzzles differ" in printed
    assert comparison.differences[0].key in printed


def test_evaluations_that_cannot_be_compared(tmp_path: Path) -> None:
    first = evaluate(toy_folder(tmp_path / "a", 3), FakeEngine(), part=None)
    bare = evaluate(toy_folder(tmp_path / "b", 3, keeps_tokens=False), FakeEngine(), part=None)
    with pytest.raises(ValueError, match=f"no {TOKENS_FILE}"):
        compare(first, bare)
    other = evaluate(toy_folder(tmp_path / "c", 3), FakeEngine(), part=None)
    other.write_config(replace(other.config, mode="cot"))
    with pytest.raises(ValueError, match="mode: got scot and cot"):
        compare(first, other)
    empty = toy_folder(tmp_path / "d", 3)
    (empty.path / TOKENS_FILE).touch()
    with pytest.raises(ValueError, match="no puzzle in common"):
        compare(first, empty)


def test_a_name_with_brackets_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`[/b]` in a name was taken for mark-up, and ended in a traceback."""
    for name in ("a", "b"):
        folder = evaluate(toy_folder(tmp_path / name, 3), FakeEngine(), part=None)
    folder.write_config(replace(folder.config, model=replace(folder.config.model, name="toy [/b]")))
    assert main(["eval", "replay", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "differs in model.name (toy, got toy [/b])" in capsys.readouterr().out


def test_margins_of_a_model_for_another_board_are_refused(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    puzzles = invented_sample(1)[:1]
    paths = []
    for last in (90, 91):
        ids = (np.array([90, last], dtype=np.uint8),)
        path = tmp_path / str(last)
        write_evaluation(path, puzzles=puzzles, kind="random", segments={puzzles[0].key: ids})
        paths.append(str(path))
    assert main(["eval", "replay", *paths, "--model", str(model)]) == 2
    assert "model: got one for 4x4 boards, allowed is 9x9" in capsys.readouterr().err


def test_command_shows_token_margin_and_board(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = toy_folder(tmp_path / "e", 3)
    key = folder.sample[0].key
    assert main(["eval", "replay", str(folder.path), "--model", str(model), "--puzzle", key]) == 1
    by_key = capsys.readouterr().out
    assert f"puzzle {key}: {folder.sample[0].givens}" in by_key
    assert "the solver writes" in by_key
    assert "by a margin of" in by_key
    assert " | " in by_key
    text = format_grid(BOARD, GIVENS)
    assert main(["eval", "replay", "--model", str(model), "--puzzle", text]) == 1
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "c"], "allowed are 0 to 2"),
        (["a", "b", "--puzzle", "x"], "puzzle: required with one evaluation"),
        (["a", "--model", "m"], "puzzle: required with one evaluation"),
        (["a", "--puzzle", "x"], "model: needed"),
        (["a", "b", "--limit", "-1"], "limit: got -1, allowed is 0 to"),
        (["a", "b", "--precision", "bf16"], "precision: got bf16, allowed without --model is"),
    ],
)
def test_options_that_do_not_fit(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "replay", *words]) == 2
    assert message in capsys.readouterr().err


def test_no_evaluation_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "score", str(tmp_path)]) == 2
    assert f"no {CONFIG_FILE}" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        EvaluationFolder.open(tmp_path)
