"""State of the decoding of one puzzle, shared by all engines.

An engine reads `prompt` and `token_budget`, generates a segment and passes it to `end_segment`,
which determines the next prompt or the finish reason.
"""

from __future__ import annotations

import hashlib
import time
from typing import cast

import numpy as np

from eval.engines.contract import FinishReason, Request, Result
from solver.boards import Board, Grid, is_solution
from solver.vocabulary import (
    DECODING_STOPS,
    END_INPUT,
    END_OUTPUT,
    INPUT,
    OUTPUT,
    PAD,
    SUMMARY,
    Tokens,
    Vocabulary,
    suffix_from_last,
)


def join(first: Tokens, second: Tokens) -> Tokens:
    """Concatenate two sequences of ids of one board."""
    return cast("Tokens", np.concatenate((first, second)))


def input_prompt(request: Request) -> Tokens:
    """Return the input block of a puzzle: `<input>` givens in row-major order `</input>`."""
    vocabulary = Vocabulary(request.board)
    cells = np.flatnonzero(request.givens)
    prompt = np.empty(2 * len(cells) + 2, dtype=vocabulary.dtype)
    prompt[0], prompt[-1] = INPUT, END_INPUT
    prompt[1:-1:2] = cells + vocabulary.first_coordinate
    prompt[2:-1:2] = request.givens[cells].astype(np.int64) + (vocabulary.first_digit - 1)
    return prompt


def output_block(board: Board, grid: Grid) -> Tokens:
    """Return the output block of a complete grid: `<output>` coordinates and digits `</output>`."""
    vocabulary = Vocabulary(board)
    output = np.empty(2 * board.num_cells + 2, dtype=vocabulary.dtype)
    output[0], output[-1] = OUTPUT, END_OUTPUT
    output[1:-1:2] = np.arange(board.num_cells) + vocabulary.first_coordinate
    output[2:-1:2] = grid.astype(np.int64) + (vocabulary.first_digit - 1)
    return output


def read_output(request: Request, output: Tokens) -> Grid | None:
    """Return the grid of an output block, uint8 (num_cells,); None unless it is well formed."""
    vocabulary, num_cells = Vocabulary(request.board), request.board.num_cells
    if len(output) != 2 * num_cells + 2 or output[0] != OUTPUT or output[-1] != END_OUTPUT:
        return None
    cells = output[1:-1:2].astype(np.int64) - vocabulary.first_coordinate
    digits = output[2:-1:2].astype(np.int64) - (vocabulary.first_digit - 1)
    if not (cells == np.arange(num_cells)).all():
        return None
    if digits.min() < 1 or digits.max() > request.board.side:
        return None
    return digits.astype(np.uint8)


def score_output(request: Request, output: Tokens) -> FinishReason:
    """Return the finish reason of a puzzle that ended with an output block."""
    grid = read_output(request, output)
    if grid is None:
        return FinishReason.MALFORMED
    is_solved = is_solution(request.board, grid=grid, givens=request.givens)
    return FinishReason.SOLVED if is_solved else FinishReason.WRONG


class PuzzleRun:
    """Decoding state of one puzzle.

    Attributes:
        request: The puzzle.
        prompt: Prompt of the current segment.
        num_new_tokens: Number of generated tokens of all previous segments.
        finish_reason: Why decoding ended; None while it continues.
    """

    def __init__(self, request: Request, *, max_positions: int) -> None:
        """Initialize the state with the input block as prompt.

        Args:
            request: The puzzle.
            max_positions: Context length of the model.

        Raises:
            ValueError: The input block leaves no position for a new token.
        """
        self.request = request
        self.prompt = input_prompt(request)
        self.num_new_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._max_positions = max_positions
        self._seen = {_digest(self.prompt)}
        self._segments: list[Tokens] = []
        self._output: Tokens | None = None
        self._start = time.perf_counter()
        if len(self.prompt) >= max_positions:
            raise ValueError(
                f"puzzle {request.key}: its input has {len(self.prompt)} tokens, the model takes "
                f"{max_positions} positions"
            )

    @property
    def token_budget(self) -> int:
        """Maximum number of generated tokens of the current segment, including its stop token."""
        caps = self.request.caps
        return min(
            caps.max_segment_tokens,
            caps.max_new_tokens - self.num_new_tokens,
            self._max_positions - len(self.prompt),
        )

    def end_segment(self, tokens: Tokens) -> None:
        """Add the current segment, and set the next prompt or the finish reason.

        Args:
            tokens: Generated ids up to the first stop token, or `token_budget` ids without one.

        Raises:
            ValueError: More ids than `token_budget`, or fewer without a stop token.
        """
        is_stopped = len(tokens) > 0 and int(tokens[-1]) in DECODING_STOPS
        key, budget = self.request.key, self.token_budget
        if len(tokens) > budget:
            raise ValueError(
                f"puzzle {key}: the engine returned {len(tokens)} tokens, allowed is at most the "
                f"token budget, {budget}"
            )
        if not is_stopped and len(tokens) < budget:
            raise ValueError(
                f"puzzle {key}: the engine returned {len(tokens)} tokens without a stop token, "
                f"allowed is the token budget, {budget}"
            )
        exhausted_limit = self._exhausted_limit()
        tokens = cast("Tokens", tokens.astype(self.prompt.dtype))
        self._segments.append(tokens)
        self.num_new_tokens += len(tokens)
        if not is_stopped:
            self.finish_reason = exhausted_limit
        elif tokens[-1] == END_OUTPUT:
            self._end_output(tokens)
        elif tokens[-1] == PAD:
            self.finish_reason = FinishReason.MALFORMED
        else:
            self._end_summary(tokens)

    def _end_output(self, tokens: Tokens) -> None:
        output = suffix_from_last(tokens, OUTPUT)
        if output is None:
            self.finish_reason = FinishReason.MALFORMED
            return
        self._output = output
        self.finish_reason = score_output(self.request, output)

    def _end_summary(self, tokens: Tokens) -> None:
        prompt = suffix_from_last(tokens, SUMMARY)
        if self.request.mode == "cot" or prompt is None:
            self.finish_reason = FinishReason.MALFORMED
            return
        self.prompt = prompt
        digest = _digest(prompt)
        if digest in self._seen:
            self.finish_reason = FinishReason.LOOP
        elif self.token_budget < 1:
            self.finish_reason = self._exhausted_limit()
        self._seen.add(digest)

    def _exhausted_limit(self) -> FinishReason:
        """Return the limit that is reached first; ties go to the one with the larger scope."""
        caps = self.request.caps
        if self.token_budget == caps.max_new_tokens - self.num_new_tokens:
            return FinishReason.TOTAL_CAP
        if self.token_budget == caps.max_segment_tokens:
            return FinishReason.SEGMENT_CAP
        return FinishReason.CONTEXT

    def result(self) -> Result:
        """Return the result.

        Raises:
            ValueError: Decoding has not ended.
        """
        if self.finish_reason is None:
            raise ValueError(f"puzzle {self.request.key}: has not ended")
        return Result(
            key=self.request.key,
            finish_reason=self.finish_reason,
            num_new_tokens=self.num_new_tokens,
            num_segments=len(self._segments),
            output=self._output,
            segments=tuple(self._segments),
            seconds=time.perf_counter() - self._start,
        )


def _digest(prompt: Tokens) -> bytes:
    return hashlib.blake2b(prompt.tobytes(), digest_size=16).digest()
