"""`sudocot solve --model`: solves puzzles with a model and compares each line with the solver."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.model_format.precision import get_precision
from data.text import tokens_to_text
from eval.engines.contract import FinishReason, Request, Result, paper_caps
from eval.engines.factory import make_network
from eval.engines.puzzle_run import PuzzleRun, read_output
from eval.engines.run_queue import begin_run
from eval.engines.streaming import SlotSequence, TokenSequence, stream_tokens
from eval.inspect.line_checks import LineChecker
from eval.network.model_folder import ModelFolder
from eval.network.transformers_model import TransformersSequence
from solver.boards import Board, Grid
from solver.puzzles import format_board
from solver.vocabulary import DECODING_STOPS, END_OUTPUT, END_SUMMARY, OUTPUT, SUMMARY, Vocabulary

_ENDINGS = {
    FinishReason.SOLVED: "the model solved the puzzle",
    FinishReason.WRONG: "the model's grid is not the solution",
    FinishReason.MALFORMED: "the model's last block is malformed",
    FinishReason.LOOP: "the model repeated a summary and would not terminate",
    FinishReason.SEGMENT_CAP: "the model reached the token limit of a segment",
    FinishReason.TOTAL_CAP: "the model reached the token limit",
    FinishReason.CONTEXT: "the model reached its context length",
}
_MAX_WRONG_LINES = 8
"""Maximum number of consecutive deviating lines to print; the rest is counted."""
_MAX_WRONG_TOKENS = 40
"""Maximum number of tokens to print of a deviating line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedLine:
    """A trace line, summary or output block of a model."""

    tokens: list[int]
    """Tokens of the model."""
    expected: list[int] | None
    """Tokens of the solver in the same state; None if the solver cannot continue."""
    depth: int
    """Number of lines on the decision stack with untried candidates."""

    @property
    def is_right(self) -> bool:
        """Whether the line equals that of the solver."""
        return self.tokens == self.expected


def checked_lines(
    model: TokenSequence, run: PuzzleRun, *, segment_tokens: int | None
) -> Iterator[CheckedLine]:
    """Decode a puzzle and yield each line on completion; `run` holds the result afterward.

    Args:
        model: The model.
        run: State of a puzzle before its first token.
        segment_tokens: Trace tokens after which a segment should end; None for CoT.
    """
    vocabulary = Vocabulary(run.request.board)
    coordinates = range(vocabulary.first_coordinate, vocabulary.first_digit)
    checker: LineChecker | None = None
    line: list[int] = []
    closing: int | None = None  # end token of the current block
    for token in stream_tokens(model, run):
        if checker is None:
            checker = LineChecker(
                run.request.board,
                run.prompt,
                num_givens=int(np.count_nonzero(run.request.givens)),
                segment_tokens=segment_tokens,
            )
        is_start = token in (SUMMARY, OUTPUT) or (token in coordinates and closing is None)
        if line and is_start:
            yield _check(checker, line)
            line, closing = [], None
        line.append(token)
        if token in (SUMMARY, OUTPUT):
            closing = END_SUMMARY if token == SUMMARY else END_OUTPUT
        if token in DECODING_STOPS:
            yield _check(checker, line)
            line, closing, checker = [], None, None
    if line and checker is not None:
        yield _check(checker, line)


def _check(checker: LineChecker, tokens: list[int]) -> CheckedLine:
    line = CheckedLine(tokens=tokens, expected=checker.expected(), depth=checker.num_open)
    checker.push(tokens)
    return line


class ModelSolver:
    """Solves puzzles with a model and prints the lines."""

    def __init__(self, folder: Path, *, console: Console, max_tokens: int) -> None:
        """Load the model.

        Args:
            folder: Model folder.
            console: Output.
            max_tokens: Token limit of a puzzle, at most that of the paper.

        Raises:
            ValueError: The folder is malformed, or its model is not supported.
            OSError: The folder cannot be read.
        """
        self._folder = ModelFolder.open(folder)
        self._model = _load(self._folder)
        self._console = console
        caps = paper_caps(self._folder.facts.mode)
        self._caps = replace(caps, max_new_tokens=min(caps.max_new_tokens, max_tokens))

    def solve(
        self, board: Board, givens: Grid, *, name: str, waiting: str, is_brief: bool = False
    ) -> bool:
        """Solve a puzzle and print each line on completion, then the result.

        Args:
            board: Board of the puzzle.
            givens: Digits, uint8 (num_cells,).
            name: Name of the puzzle.
            waiting: Text shown on a terminal until the first line.
            is_brief: Print only the lines of the trace, all of them in full.

        Returns:
            Whether the puzzle is solved.

        Raises:
            ValueError: The model is for another board.
        """
        facts = self._folder.facts
        request = Request(key=name, board=board, givens=givens, mode=facts.mode, caps=self._caps)
        run = begin_run(
            request, num_ids=self._model.num_ids, max_positions=self._model.max_positions
        )
        if not is_brief:
            self._console.print(Text(f"{name}: {board.name}, solved by a model", style="bold"))
        self._console.print(tokens_to_text(board, run.prompt))
        num_lines = num_right = num_wrong_in_row = 0
        first_wrong: int | None = None
        lines = checked_lines(self._model, run, segment_tokens=facts.segment_tokens)
        with Console(stderr=True, markup=False).status(waiting):
            first_lines = list(itertools.islice(lines, 1))
        # The first line may include the compilation of the solver.
        start, num_warm_up = time.perf_counter(), sum(len(line.tokens) for line in first_lines)
        for line in itertools.chain(first_lines, lines):
            num_lines += 1
            num_right += line.is_right
            is_first = first_wrong is None and not line.is_right
            if is_first:
                first_wrong = num_lines
            num_folded = num_wrong_in_row - _MAX_WRONG_LINES
            num_wrong_in_row = 0 if line.is_right else num_wrong_in_row + 1
            if is_brief or num_wrong_in_row <= _MAX_WRONG_LINES:
                if not is_brief:
                    self._write_fold(num_folded)
                self._console.print(_line_text(board, line, is_first=is_first, is_cut=not is_brief))
                self._console.file.flush()
        if not is_brief:
            self._write_fold(num_wrong_in_row - _MAX_WRONG_LINES)
        result = run.result()
        if not is_brief:
            self._show(request, result)
            num_timed = result.num_new_tokens - num_warm_up
            rate = num_timed / (time.perf_counter() - start) if num_timed > 0 else None
            self._console.print(_counts_text(result, rate, num_lines, num_right, first_wrong))
        return result.finish_reason is FinishReason.SOLVED

    def _write_fold(self, num_folded: int) -> None:
        if num_folded > 0:
            lines = "line" if num_folded == 1 else "lines"
            fold = f"... {num_folded:,} more deviating {lines}"
            self._console.print(Text(fold, style="red"))

    def _show(self, request: Request, result: Result) -> None:
        grids = [request.givens]
        grid = None if result.output is None else read_output(request, result.output)
        if grid is not None:
            grids.append(grid)
        table = Table.grid(padding=(0, 6, 0, 0))
        table.add_row(*(Text(format_board(request.board, shown)) for shown in grids))
        self._console.print(table)
        is_solved = result.finish_reason is FinishReason.SOLVED
        self._console.print(
            Text(_ENDINGS[result.finish_reason], style="green" if is_solved else "red")
        )


def _load(folder: ModelFolder) -> TokenSequence:
    if folder.network_config is None:
        return TransformersSequence(folder)
    precision, device = get_precision("fp32"), torch.device("cpu")
    return SlotSequence(make_network(folder, precision=precision, device=device))


def _line_text(board: Board, line: CheckedLine, *, is_first: bool, is_cut: bool) -> Text:
    is_cut = is_cut and not line.is_right and len(line.tokens) > _MAX_WRONG_TOKENS
    tokens = line.tokens[:_MAX_WRONG_TOKENS] if is_cut else line.tokens
    text = Text("  " * line.depth + tokens_to_text(board, tokens))
    if line.is_right:
        return text
    if is_cut:
        text.append(f" ... {len(line.tokens) - len(tokens):,} more tokens")
    text.append("   <- " + ("first deviation, " if is_first else ""), style="bold red")
    if line.expected is None:
        return text.append("the solver cannot continue the lines above", style="red")
    return text.append(f"solver: {tokens_to_text(board, line.expected)}", style="red")


def _counts_text(
    result: Result, rate: float | None, num_lines: int, num_right: int, first_wrong: int | None
) -> str:
    deviation = "none" if first_wrong is None else f"the first in line {first_wrong:,}"
    speed = "" if rate is None else f", {rate:,.0f} per second"
    return (
        f"tokens       {result.num_new_tokens:,}{speed}\n"
        f"segments     {result.num_segments:,}\n"
        f"lines        {num_lines:,}, of them {num_right:,} as the solver's;"
        f" deviations: {deviation}"
    )
