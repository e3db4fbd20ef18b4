"""The decoding of one puzzle from prompt to prompt: the rules that all engines share.

An engine asks for `prompt` and `allowance`, generates, and reports the end of the segment; what
that means for the puzzle is decided here and nowhere else.
"""

from __future__ import annotations

import hashlib
import time
from typing import cast

import numpy as np

from eval.engines.contract import EndedBy, Request, Result
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
)


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
    """Read an output block, uint8 (num_cells,); None unless it is complete and row-major."""
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


def score_output(request: Request, output: Tokens) -> EndedBy:
    """Class of a puzzle that ended with an output block."""
    grid = read_output(request, output)
    if grid is None:
        return EndedBy.MALFORMED
    is_solved = is_solution(request.board, grid=grid, givens=request.givens)
    return EndedBy.SOLVED if is_solved else EndedBy.WRONG


class PuzzleRun:
    """Where one puzzle stands.

    Attributes:
        request: the puzzle.
        prompt: ids of the current segment's prompt.
        num_new_tokens: generated tokens of the segments before it.
        ended_by: class of the end; None while there is a segment to generate.
    """

    def __init__(self, request: Request, *, max_positions: int) -> None:
        """Begin a puzzle.

        Args:
            request: the puzzle.
            max_positions: longest sequence, prompt included, that the model takes.

        Raises:
            ValueError: the input block leaves no position for a new token.
        """
        self.request = request
        self.prompt = input_prompt(request)
        self.num_new_tokens = 0
        self.ended_by: EndedBy | None = None
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
    def allowance(self) -> int:
        """Tokens that the current segment may have, its stop token included."""
        caps = self.request.caps
        return min(
            caps.max_segment_tokens,
            caps.max_new_tokens - self.num_new_tokens,
            self._max_positions - len(self.prompt),
        )

    def end_segment(self, tokens: Tokens) -> None:
        """Take the generated ids of the current segment, and set the next prompt or the end.

        Args:
            tokens: ids up to the first stop token, or `allowance` ids without one.

        Raises:
            ValueError: fewer ids without a stop token, or more than were allowed.
        """
        is_stopped = len(tokens) > 0 and int(tokens[-1]) in DECODING_STOPS
        if len(tokens) > self.allowance or (not is_stopped and len(tokens) < self.allowance):
            raise ValueError(f"tokens: got {len(tokens)}, allowed are {self.allowance}")
        out_of = self._exhausted()
        tokens = cast("Tokens", tokens.astype(self.prompt.dtype))
        self._segments.append(tokens)
        self.num_new_tokens += len(tokens)
        if not is_stopped:
            self.ended_by = out_of
        elif tokens[-1] == END_OUTPUT:
            self._end_output(tokens)
        elif tokens[-1] == PAD:
            self.ended_by = EndedBy.MALFORMED
        else:
            self._end_summary(tokens)

    def _end_output(self, tokens: Tokens) -> None:
        start = _last_position(tokens, OUTPUT)
        if start is None:
            self.ended_by = EndedBy.MALFORMED
            return
        self._output = tokens[start:]
        self.ended_by = score_output(self.request, self._output)

    def _end_summary(self, tokens: Tokens) -> None:
        start = _last_position(tokens, SUMMARY)
        if self.request.mode == "cot" or start is None:
            self.ended_by = EndedBy.MALFORMED
            return
        self.prompt = tokens[start:]
        digest = _digest(self.prompt)
        if digest in self._seen:
            self.ended_by = EndedBy.LOOP
        elif self.allowance < 1:
            self.ended_by = self._exhausted()
        self._seen.add(digest)

    def _exhausted(self) -> EndedBy:
        """Class of the cap that binds first; of equal ones the larger scope."""
        caps = self.request.caps
        if self.allowance == caps.max_new_tokens - self.num_new_tokens:
            return EndedBy.TOTAL_CAP
        if self.allowance == caps.max_segment_tokens:
            return EndedBy.SEGMENT_CAP
        return EndedBy.CONTEXT

    def result(self) -> Result:
        """Return the result of a puzzle that has ended.

        Raises:
            ValueError: it has not.
        """
        if self.ended_by is None:
            raise ValueError(f"puzzle {self.request.key}: has not ended")
        return Result(
            key=self.request.key,
            ended_by=self.ended_by,
            num_new_tokens=self.num_new_tokens,
            num_segments=len(self._segments),
            output=self._output,
            segments=tuple(self._segments),
            seconds=time.perf_counter() - self._start,
        )


def _last_position(tokens: Tokens, token: int) -> int | None:
    positions = np.flatnonzero(tokens == token)
    return int(positions[-1]) if len(positions) else None


def _digest(prompt: Tokens) -> bytes:
    return hashlib.blake2b(prompt.tobytes(), digest_size=16).digest()
