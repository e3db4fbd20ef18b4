"""`sudocot trace`: the search of one puzzle as a page to step through."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from data.model_format.precision import PrecisionName, get_precision
from data.runtime.files import publish_page
from data.runtime.ranges import SegmentTokens, TokenCount, check_ranges
from eval.engines.factory import EngineName
from eval.trace_page.build import MAX_PAGE_TOKENS, trace_page
from eval.trace_page.register_check import Mismatch, first_mismatch
from eval.trace_page.registers import MAX_REGISTER_TOKENS
from eval.trace_page.sources import Attempt, attempt_of_evaluation, attempt_of_model
from eval.trace_page.streams import first_difference, model_stream, solver_stream
from solver.boards import get_board
from solver.puzzles import parse_puzzle


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write the search of one puzzle as an HTML page: board, decision stack, tokens, step by step.

    Without a model it shows the solver's trace. With --model, which solves the puzzle now, or
    --evaluation, whose tokens were kept, it also shows the model's tokens, and marks the first that
    is not the solver's. Of a compiled model it also shows what the registers hold at each token.
    The page needs no other file and no network.

    Examples:
        sudocot trace '1...|..3.|.4..|...2' --out trace.html
        sudocot trace PUZZLE --segment-tokens 512 --out scot.html
        sudocot trace PUZZLE --model runs/scot/final --out model.html
        sudocot trace PUZZLE --model COMPILED --out registers.html
        sudocot trace --evaluation evals/scot --out first-failure.html
    """

    puzzle: Positional[str | None] = None
    """The puzzle; with --evaluation also its key, or nothing: the failure with the shortest CoT."""
    out: Path
    """File to write."""
    board: str | None = None
    """Board: 4x4, 6x6, 9x9 or 16x16; told from the puzzle if not given."""
    segment_tokens: SegmentTokens | None = None
    """Show the solver's SCoT, a summary after so many trace tokens; with a model, its own number
    is taken."""
    model: Path | None = None
    """Model folder."""
    evaluation: Path | None = None
    """Evaluation folder, made with --keep-tokens."""
    engine: EngineName | None = None
    """How --model decodes: by default segment, or hf for networks that it does not compute."""
    precision: PrecisionName = "fp32"
    """Number formats of --model: bf16 or fp32."""
    open: bool = False
    """Open the page in the browser."""
    max_page_tokens: TokenCount = MAX_PAGE_TOKENS
    """Tokens that the page holds of a longer trace."""
    max_register_tokens: Annotated[int, Ge(0), Le(10**12)] = MAX_REGISTER_TOKENS
    """Tokens, prompts of segments included, whose registers it holds; 0 for no registers."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.model is not None and self.evaluation is not None:
            raise ValueError("model and evaluation: give one of them")
        if self.puzzle is None and self.evaluation is None:
            raise ValueError("puzzle: got none, allowed without one is only --evaluation")
        if self.board is not None:
            get_board(self.board)
        has_model = self.model is not None or self.evaluation is not None
        if has_model and self.segment_tokens is not None:
            raise ValueError("segment_tokens: follows from the model, give it without one")


def main(config: Config) -> int:
    """Write the page, and say where the model leaves the solver."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    attempt = _find_attempt(config)
    if attempt is None:
        wanted = None if config.board is None else get_board(config.board)
        board, givens = parse_puzzle(config.puzzle or "", board=wanted)
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
            end=attempt.ended_by,
        )
        difference, readings = first_difference(solver.ids, model.ids), attempt.readings
        if difference is None:
            console.print("the model wrote the solver's tokens")
        else:
            console.print(f"the model leaves the solver's trace at token {difference + 1:,}")
        mismatch = _compare_registers(console, attempt, difference)
    page = trace_page(
        board,
        givens,
        solver=solver,
        model=model,
        readings=readings,
        mismatch=mismatch,
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
    """Say whether the registers hold what the solver knows, as long as it writes the same."""
    if attempt.readings is None:
        return None
    num_tokens = sys.maxsize if difference is None else difference
    mismatch = first_mismatch(attempt.board, attempt.readings, num_tokens=num_tokens)
    if mismatch is None:
        num_tokens = min(num_tokens, attempt.readings.num_tokens)
        console.print(f"the registers hold what the solver knows, at {num_tokens:,} tokens")
    else:
        console.print(
            f"the register {mismatch.register} is not what the solver knows at token "
            f"{mismatch.token + 1:,}"
        )
    return mismatch


def _find_attempt(config: Config) -> Attempt | None:
    if config.evaluation is not None:
        return attempt_of_evaluation(config.evaluation, puzzle=config.puzzle)
    if config.model is None:
        return None
    wanted = None if config.board is None else get_board(config.board)
    board, givens = parse_puzzle(config.puzzle or "", board=wanted)
    return attempt_of_model(
        config.model,
        board,
        givens,
        engine=config.engine,
        precision=get_precision(config.precision),
        max_register_tokens=config.max_register_tokens,
    )
