"""`sudocot trace`: writes a page that replays the search of one puzzle."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from data.model_format.precision import PrecisionName, get_precision
from data.runtime.files import check_page, publish_page
from data.runtime.options import check_defaults
from data.runtime.ranges import SegmentTokens, TokenCount, check_ranges
from eval.engines.factory import LocalEngineName
from eval.inspect.streams import first_difference, model_stream, solver_stream
from eval.trace_page.build import MAX_PAGE_TOKENS, trace_page
from eval.trace_page.register_check import Mismatch, first_mismatch
from eval.trace_page.registers import MAX_REGISTER_TOKENS
from eval.trace_page.sources import Attempt, attempt_of_evaluation, attempt_of_model
from solver.boards import Board, Grid, get_board
from solver.puzzles import parse_puzzle

_MODEL_OPTIONS = ("engine", "precision", "max_register_tokens")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write an HTML page that replays the search of one puzzle: board, decision stack and tokens.

    Shows the trace of the solver. With --model, which solves the puzzle, or --evaluation with
    stored tokens, also shows the tokens of the model and marks the first deviation from the solver.
    For a compiled model, also shows its registers at each token; for other models, the
    probabilities of their tokens. The page is self-contained.

    Examples:
        sudocot trace '1...|..3.|.4..|...2' --out trace.html
        sudocot trace PUZZLE --segment-tokens 512 --out scot.html
        sudocot trace PUZZLE --model runs/scot/final --out model.html
        sudocot trace PUZZLE --model COMPILED --out registers.html
        sudocot trace --evaluation evals/scot --out first-failure.html
    """

    puzzle: Positional[str | None] = None
    """The puzzle; with --evaluation also its key, by default the failure with the shortest CoT."""
    out: Path
    """Output file."""
    board: str | None = None
    """Board: 4x4, 6x6, 9x9 or 16x16; by default detected from the puzzle."""
    segment_tokens: SegmentTokens | None = None
    """Show the solver's SCoT with a summary after this number of trace tokens; without a model
    only."""
    model: Path | None = None
    """Model folder or name."""
    evaluation: Path | None = None
    """Evaluation folder, made with --keep-tokens."""
    engine: LocalEngineName | None = None
    """Engine of --model: by default segment, or hf for other model families."""
    precision: PrecisionName = "fp32"
    """Number formats of --model: bf16 or fp32."""
    open: bool = False
    """Open the page in the browser."""
    max_page_tokens: TokenCount = MAX_PAGE_TOKENS
    """Maximum number of tokens per trace."""
    max_register_tokens: Annotated[int, Ge(0), Le(10**12)] = MAX_REGISTER_TOKENS
    """Maximum number of tokens with registers, including prompts of segments; 0 for none."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.model is not None and self.evaluation is not None:
            raise ValueError("evaluation and model: only one of them is allowed")
        if self.puzzle is None and self.evaluation is None:
            raise ValueError("puzzle: got none, allowed only with --evaluation")
        if self.board is not None:
            get_board(self.board)
        has_model = self.model is not None or self.evaluation is not None
        if has_model and self.segment_tokens is not None:
            raise ValueError("segment_tokens: not allowed with --model or --evaluation")
        if self.evaluation is not None and self.board is not None:
            raise ValueError("board: not allowed with --evaluation")
        if self.model is None:
            check_defaults(self, _MODEL_OPTIONS, where="without --model")


def main(config: Config) -> int:
    """Write the page and report the first deviation of the model."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    check_page(config.out)
    attempt = _find_attempt(config)
    if attempt is None:
        board, givens = _parse_puzzle(config)
        solver = solver_stream(board, givens, segment_tokens=config.segment_tokens)
        model = readings = mismatch = None
    else:
        board, givens = attempt.board, attempt.givens
        solver = solver_stream(board, givens, segment_tokens=attempt.segment_tokens)
        model = model_stream(
            givens,
            solver=solver,
            segments=attempt.segments,
            name=attempt.model_name,
            finish_reason=attempt.finish_reason,
        )
        difference, readings = first_difference(solver.ids, model.ids), attempt.readings
        if difference is None:
            console.print("the model follows the solver's trace")
        else:
            console.print(f"the model deviates from the solver's trace at token {difference + 1:,}")
        mismatch = _compare_registers(console, attempt, difference)
    page = trace_page(
        board,
        givens,
        solver=solver,
        model=model,
        readings=readings,
        mismatch=mismatch,
        probabilities=None if attempt is None else attempt.probabilities,
        max_tokens=config.max_page_tokens,
    )
    publish_page(config.out, page)
    console.print(f"page in {config.out}", markup=False)
    if config.open:
        webbrowser.open(config.out.resolve().as_uri())
    return 0


def _compare_registers(
    console: Console, attempt: Attempt, difference: int | None
) -> Mismatch | None:
    """Compare the registers with the solver's state up to the first deviation and report it."""
    if attempt.readings is None:
        return None
    num_tokens = sys.maxsize if difference is None else difference
    mismatch = first_mismatch(attempt.board, attempt.readings, num_tokens=num_tokens)
    if mismatch is None:
        num_tokens = min(num_tokens, attempt.readings.num_tokens)
        console.print(f"the registers match the solver's state at all {num_tokens:,} tokens")
    else:
        console.print(
            f"the register {mismatch.register} differs from the solver's state at token "
            f"{mismatch.token + 1:,}"
        )
    return mismatch


def _find_attempt(config: Config) -> Attempt | None:
    if config.evaluation is not None:
        return attempt_of_evaluation(config.evaluation, puzzle=config.puzzle)
    if config.model is None:
        return None
    board, givens = _parse_puzzle(config)
    return attempt_of_model(
        config.model,
        board,
        givens,
        engine=config.engine,
        precision=get_precision(config.precision),
        max_register_tokens=config.max_register_tokens,
        max_tokens=config.max_page_tokens,
    )


def _parse_puzzle(config: Config) -> tuple[Board, Grid]:
    puzzle = config.puzzle or ""
    board = None if config.board is None else get_board(config.board)
    try:
        return parse_puzzle(puzzle, board=board)
    except ValueError as error:
        if os.path.isfile(puzzle):  # noqa: PTH113 - pathlib raises for long names
            raise ValueError(f"puzzle: got the file {puzzle}, allowed is a puzzle") from None
        raise error from None
