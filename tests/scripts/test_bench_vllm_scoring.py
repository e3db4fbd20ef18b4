"""Greedy tokens against prompt logprobs in vLLM, with a vLLM of invented logprobs."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.engines.contract import Caps, Request
from eval.engines.puzzle_run import input_prompt
from scripts.bench import vllm_scoring
from solver.boards import get_board
from solver.puzzles import parse_puzzle

PUZZLE = "1.....3..4.....2"
BOARD = get_board("4x4")


def test_prompts_are_those_of_the_engines(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text(f"{PUZZLE}\n{PUZZLE.replace('.', '0')}\n")
    caps = Caps(max_new_tokens=1, max_segment_tokens=1)
    givens = parse_puzzle(PUZZLE)[1]
    request = Request(key="0", board=BOARD, givens=givens, mode="cot", caps=caps)
    expected = input_prompt(request).tolist()
    assert vllm_scoring.read_prompts(path, BOARD) == [expected, expected]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PUZZLE}.", r"p\.txt:2:17: 17 cells; allowed are 16 cells"),
        ("1.....3..4....#2", r"p\.txt:2:15: '#' is not a cell"),
        ("1.....3..4.....5", r"p\.txt:2:16: '5' is not a cell"),
        ("", r"p\.txt:2:1: 0 cells; allowed are 16 cells"),
    ],
)
def test_a_malformed_puzzle_is_located(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text(f"{PUZZLE}\n{line}\n")
    with pytest.raises(ValueError, match=message):
        vllm_scoring.read_prompts(path, BOARD)


class FakeLLM:
    """The likeliest token at each position is 7 with logprob -1; all others have -2, 8 has -1."""

    def generate(self, prompt: dict[str, list[int]], *_: Any, **__: Any) -> list[Any]:
        def entry(token: int) -> dict[int, Any]:
            logprob = -1.0 if token in (7, 8) else -2.0
            return {7: SimpleNamespace(logprob=-1.0), token: SimpleNamespace(logprob=logprob)}

        ids = prompt["prompt_token_ids"]
        return [SimpleNamespace(prompt_logprobs=[None, *map(entry, ids[1:])])]


def test_differing_positions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the prompt, and not ties."""
    fake = types.ModuleType("vllm")
    fake.SamplingParams = lambda **_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", fake)
    llm: Any = FakeLLM()
    prompt = [1, 2, 3]
    assert vllm_scoring._score(llm, prompt, [7, 8, 9, 7]) == (4, 0, [1.0], 0)
    tokens = [7] * 250 + [9] * 10  # positions 253 to 262
    assert vllm_scoring._score(llm, prompt, tokens) == (260, 7, [1.0] * 10, 7)
