"""Tests of what the evaluation harnesses share: documents, prompts and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from eval.harnesses.documents import (
    Metrics,
    answer_of,
    load_documents,
    messages_of,
    question_of,
    score_text,
)
from eval.harnesses.lm_eval_task import functions
from eval.text_protocol.prompt import TextProtocol, answer_block
from eval.text_protocol.score import Outcome, Reply, score_reply
from solver.mrv.tracer import trace
from solver.puzzle_io.cells import read_grid
from solver.puzzles import puzzle_id
from tests.eval.fake_engine import BOARD, toy_sample
from tests.eval.stub_server import KINDS, planned_answer, planned_kind

PUZZLES = [puzzle.givens for puzzle in toy_sample(24)]
GIVENS = [read_grid(BOARD, puzzle) for puzzle in PUZZLES]
UNSOLVABLE = ["11..............", "123....4........"]


@pytest.fixture
def puzzles(tmp_path: Path) -> Path:
    """File with all puzzles, and puzzles without a solution at the beginning and the end."""
    path = tmp_path / "puzzles.txt"
    path.write_text("\n".join([UNSOLVABLE[0], *PUZZLES, UNSOLVABLE[1]]))
    return path


@pytest.mark.parametrize("shots", [0, 2])
def test_prompts_are_those_of_the_text_protocol(puzzles: Path, shots: int) -> None:
    protocol = TextProtocol(board=BOARD, num_shots=shots)
    documents = load_documents(puzzles, shots=shots)
    assert [question_of(document) for document in documents] == list(map(protocol.question, GIVENS))
    assert [messages_of(document) for document in documents] == list(map(protocol.messages, GIVENS))


def test_documents_have_key_and_solution(puzzles: Path) -> None:
    documents = load_documents(puzzles)
    keys = puzzle_id(BOARD, np.stack(GIVENS)).tolist()
    assert [document["key"] for document in documents] == [f"{key:016x}" for key in keys]
    for document, givens in zip(documents, GIVENS, strict=True):
        solution = trace(BOARD, givens).solution
        assert solution is not None
        assert answer_of(document) == answer_block(BOARD, solution)
        assert score_text(document, answer_of(document))["solved"] == 1


def test_puzzles_without_a_solution_are_skipped(puzzles: Path) -> None:
    assert [document["givens"] for document in load_documents(puzzles)] == PUZZLES


def test_repeated_puzzles_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.txt"
    path.write_text("\n".join([*PUZZLES[:3], *PUZZLES]))
    assert [document["givens"] for document in load_documents(path)] == PUZZLES


@pytest.mark.parametrize("limit", [0, 1, 5, 24, 100])
def test_limit_is_the_maximum_number_of_documents(puzzles: Path, limit: int) -> None:
    documents = load_documents(puzzles, limit=limit)
    assert [document["givens"] for document in documents] == PUZZLES[:limit]


def test_malformed_rows_and_numbers_of_examples_are_rejected(tmp_path: Path, puzzles: Path) -> None:
    with pytest.raises(ValueError, match="shots: got 9, allowed are 0 to 4"):
        load_documents(puzzles, shots=9)
    path = tmp_path / "malformed.txt"
    path.write_text(f"{PUZZLES[0]}\n{PUZZLES[1][:-1]}\n{PUZZLES[2]}\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}:2:")):
        load_documents(path)


def test_planned_answers_get_the_scores_of_the_project(puzzles: Path) -> None:
    kinds = []
    for document, givens in zip(load_documents(puzzles), GIVENS, strict=True):
        kind, answer = planned_kind(BOARD, givens), planned_answer(BOARD, givens)
        kinds.append(kind)
        num_blank = int(np.count_nonzero(givens == 0))
        right_cells = {"wrong": (num_blank - 1) / num_blank, "prose": 0.0, "refusal": 0.0}
        expected = Metrics(
            solved=float(kind == "solved"),
            lenient=float(kind in ("solved", "loose")),
            right_cells=right_cells.get(kind, 1.0),
        )
        assert score_text(document, answer) == expected
        assert functions.process_results(document, [answer]) == expected
        score = score_reply(BOARD, givens, Reply(text=answer))
        assert score.is_solved == (expected["solved"] == 1)
        assert (score.lenient is Outcome.SOLVED) == (expected["lenient"] == 1)
        truncated = score_text(document, answer, is_truncated=True)
        assert truncated == {**expected, "solved": 0.0}
    assert set(kinds) == set(KINDS)


def test_functions_of_lm_eval_give_the_same_documents(puzzles: Path) -> None:
    documents = load_documents(puzzles, limit=5)
    loaded = list(functions.load(puzzles=str(puzzles), limit=5, model="m")["test"])
    assert loaded == documents
    assert [functions.question(document) for document in loaded] == list(
        map(question_of, documents)
    )
    assert [functions.answer(document) for document in loaded] == list(map(answer_of, documents))
    with pytest.raises(ValueError, match="puzzles: got none"):
        functions.load(limit=5)
