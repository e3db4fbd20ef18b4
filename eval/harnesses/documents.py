"""Documents, prompts and metrics that all harnesses share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from eval.text_protocol.prompt import Message, TextProtocol, answer_block
from eval.text_protocol.score import Outcome, Reply, count_right_cells, score_reply
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.puzzle_io.cells import format_grid, read_grid
from solver.puzzles import puzzle_id, read_puzzles


class Document(TypedDict):
    """One puzzle as a JSON object."""

    key: str
    """Puzzle hash, 16 hex digits."""
    board: str
    """Name of the board."""
    givens: str
    """Cells in row-major order, `.` for a blank."""
    solution: str
    """Cells of the solution."""
    num_shots: int
    """Solved examples before the question."""


class Metrics(TypedDict):
    """Scores of a reply."""

    solved: float
    """1 if the strict parser finds the solution, else 0; the score to report."""
    lenient: float
    """1 if the lenient parser finds it, else 0."""
    right_cells: float
    """Share of blank cells that are filled as in the solution."""


def load_documents(
    puzzles: str | Path, *, shots: int = 0, limit: int | None = None
) -> list[Document]:
    """Read a puzzle list of any format; puzzles without a solution are skipped.

    Args:
        puzzles: Puzzle file.
        shots: Number of solved examples before each question.
        limit: Maximum number of documents.

    Raises:
        OSError: The file cannot be read.
        ValueError: There are no puzzles, or a row is malformed.
    """
    documents: list[Document] = []
    for document in _documents(puzzles, shots=shots):
        if limit is not None and len(documents) >= limit:
            break
        documents.append(document)
    return documents


def _documents(puzzles: str | Path, *, shots: int) -> Iterator[Document]:
    reader = read_puzzles(puzzles)
    TextProtocol(board=reader.board, num_shots=shots)  # checks `shots`
    seen: set[int] = set()  # an evaluation contains each puzzle once
    for block in reader:
        if block.errors:
            raise ValueError(str(block.errors[0]))
        keys = puzzle_id(reader.board, block.grids)
        for key, givens in zip(keys.tolist(), block.grids, strict=True):
            if key in seen:
                continue
            seen.add(key)
            solution = trace(reader.board, givens).solution
            if solution is not None:
                yield Document(
                    key=f"{key:016x}",
                    board=reader.board.name,
                    givens=format_grid(reader.board, givens),
                    solution=format_grid(reader.board, solution),
                    num_shots=shots,
                )


def messages_of(document: Document) -> list[Message]:
    """Return the chat messages of a document."""
    board = get_board(document["board"])
    protocol = TextProtocol(board=board, num_shots=document["num_shots"])
    return protocol.messages(read_grid(board, document["givens"]))


def question_of(document: Document) -> str:
    """Return the last message of a document: the question."""
    return messages_of(document)[-1]["content"]


def answer_of(document: Document) -> str:
    """Return the solution in the required answer format."""
    board = get_board(document["board"])
    return answer_block(board, read_grid(board, document["solution"]))


def score_text(document: Document, text: str, *, is_truncated: bool = False) -> Metrics:
    """Score a reply to a document."""
    board = get_board(document["board"])
    givens, solution = (read_grid(board, document[name]) for name in ("givens", "solution"))
    score = score_reply(board, givens, Reply(text=text, is_truncated=is_truncated))
    num_blank = int((givens == 0).sum())
    num_right = count_right_cells(board, givens, score.lenient_grid, solution)
    return Metrics(
        solved=float(score.is_solved),
        lenient=float(score.lenient is Outcome.SOLVED),
        right_cells=num_right / num_blank if num_blank else 1.0,
    )
