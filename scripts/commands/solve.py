"""`sudocot solve`: solve puzzles and show solutions and traces."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.columns import ColumnOptions
from data.runtime.ranges import SegmentTokens, TokenCount, check_ranges
from data.runtime.tables import draw_board
from data.segments import split_into_segments
from data.text import tokens_to_lines
from solver.boards import Board, Grid, get_board
from solver.generation.counting import MAX_UNIQUENESS_NODES, UNDECIDED, count_solutions_many
from solver.jit import kernel_cache_dir
from solver.mrv.trace_lines import trace_lines
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, Status, Trace, trace
from solver.puzzles import (
    NO_COLUMN_NAMES,
    ColumnNames,
    RowError,
    conflict_text,
    conflicting_givens,
    format_board,
    parse_puzzle,
    read_puzzles,
)
from solver.vocabulary import NONE, Tokens

_NUM_SOLUTIONS_TEXT = {
    1: "this is the only solution",
    2: "there are two or more solutions, and this is the first that the search finds",
    UNDECIDED: f"uniqueness is undecided after {MAX_UNIQUENESS_NODES:,} nodes",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Solve puzzles and show statistics of the search.

    The exit code is 1 if any puzzle has no solution, has conflicting givens, cannot be read,
    reaches --max-tokens, or is not solved by the model.

    Examples:
        sudocot solve '1...|..3.|.4..|...2'
        sudocot solve puzzles.csv --board 9x9
        sudocot solve - --no-report --trace < puzzles.txt
        sudocot solve --model runs/scot/final '1...|..3.|.4..|...2'
    """

    puzzle: Positional[str]
    """A puzzle, a file of puzzles in any supported format, or `-` for standard input."""
    model: Path | None = None
    """Model folder or name: solve the puzzles with the model, on the CPU. The trace is printed
    while it is generated; lines that deviate from the solver are marked."""
    board: str | None = None
    """Board of the puzzles: 4x4, 6x6, 9x9 or 16x16 (default: detected)."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    max_tokens: TokenCount = DEFAULT_MAX_TOKENS
    """Maximum number of tokens per puzzle; the search stops there."""
    trace: bool = False
    """Print the CoT, one trace line per line, indented by the number of open branches."""
    tokens: bool = False
    """Print the token ids of the CoT."""
    segment_tokens: SegmentTokens | None = None
    """Split the CoT into SCoT segments of this many trace tokens (512 in the paper); --trace and
    --tokens print the segments, separated by empty lines."""
    report: bool = True
    """Boards and statistics, in addition to the output of --trace and --tokens."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.board is not None:
            get_board(self.board)
        if self.model is not None and (self.trace or self.tokens or self.segment_tokens):
            raise ValueError(
                "model: not allowed with --trace, --tokens or --segment-tokens; a model's trace is "
                "always printed, in the segments of its training"
            )


def main(config: Config) -> int:
    """Solve the puzzles; return 0 if all were solved, else 1."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    board = None if config.board is None else get_board(config.board)
    if config.model is not None:
        return _solve_with_model(config, config.model, board=board, console=console)
    are_all_solved = True
    with Console(stderr=True, markup=False).status(_waiting_text()) as spinner:
        for name, found_board, givens in _read(
            config.puzzle, board=board, columns=config.columns.names
        ):
            if isinstance(givens, RowError):
                sys.stderr.write(f"sudocot: {givens}\n")
                are_all_solved = False
                continue
            result = trace(found_board, givens, max_tokens=config.max_tokens)
            is_solved = result.status is Status.SOLVED
            # Without the report, the solutions of a solved puzzle are not counted.
            is_stated = config.report or not is_solved
            outcome = _outcome_text(found_board, givens, result) if is_stated else ""
            are_all_solved &= is_solved
            if not (config.report or is_solved):
                sys.stderr.write(f"sudocot: {name}: {outcome}\n")
            sequences = _cut(found_board, result, segment_tokens=config.segment_tokens)
            spinner.stop()
            if config.report:
                _show(console, found_board, givens, result, name=name, outcome=outcome)
                if config.segment_tokens is not None:
                    console.print(_segments_text(result, sequences))
                console.print()
            if config.trace:
                texts = [tokens_to_lines(found_board, tokens) for tokens in sequences]
                console.file.write("\n\n".join(texts) + "\n")
            if config.tokens:
                texts = [" ".join(map(str, tokens.tolist())) for tokens in sequences]
                console.file.write("\n\n".join(texts) + "\n")
            console.file.flush()
            spinner.start()
    return 0 if are_all_solved else 1


def _solve_with_model(
    config: Config, folder: Path, *, board: Board | None, console: Console
) -> int:
    with Console(stderr=True, markup=False).status("loading the model"):
        from eval.inspect.solve_with_model import ModelSolver

        solver = ModelSolver(folder, console=console, max_tokens=config.max_tokens)
    are_all_solved = True
    for name, found_board, givens in _read(
        config.puzzle, board=board, columns=config.columns.names
    ):
        if isinstance(givens, RowError):
            sys.stderr.write(f"sudocot: {givens}\n")
            are_all_solved = False
            continue
        if conflicting_givens(found_board, givens[None])[0]:
            sys.stderr.write(f"sudocot: {name}: givens conflict: a unit holds a digit twice\n")
            are_all_solved = False
            continue
        are_all_solved &= solver.solve(
            found_board, givens, name=name, waiting=_waiting_text(), is_brief=not config.report
        )
    return 0 if are_all_solved else 1


def _waiting_text() -> str:
    cache = kernel_cache_dir()
    is_compiled = cache is not None and any(cache.rglob("*.nbi"))
    return "solving" if is_compiled else "compiling the solver (first run only)"


def _read(
    source: str, *, board: Board | None, columns: ColumnNames
) -> Iterator[tuple[str, Board, Grid | RowError]]:
    """Yield name, board and givens of each puzzle, in input order."""
    # pathlib raises if a puzzle is longer than the maximum file name; os.path does not.
    if source != "-" and not os.path.exists(source):  # noqa: PTH110
        if columns != NO_COLUMN_NAMES:
            raise ValueError(f"{source}: no such file; column names are allowed for a table only")
        try:
            found_board, givens = parse_puzzle(source, board=board)
        except ValueError as error:
            raise ValueError(f"{error} (and there is no file of that name)") from None
        yield "puzzle", found_board, givens
        return
    # Small blocks, for a low latency of the first results.
    if source == "-" and sys.stdin is None:
        raise ValueError("puzzle: -: the standard input is closed")
    reader = read_puzzles(
        sys.stdin.buffer if source == "-" else Path(source),
        board=board,
        block_rows=64,
        columns=columns,
    )
    for block in reader:
        rows: dict[int, Grid | RowError] = dict(zip(block.rows.tolist(), block.grids, strict=True))
        rows.update((error.row, error) for error in block.errors)
        for row in sorted(rows):
            yield f"{reader.file}, puzzle {row + 1}", reader.board, rows[row]


def _cut(board: Board, result: Trace, *, segment_tokens: int | None) -> list[Tokens]:
    """Return the segments of a solved puzzle; without `segment_tokens`, the CoT."""
    if segment_tokens is None or result.status is not Status.SOLVED:
        return [result.tokens]
    ends = np.array([len(result.tokens)])
    segments = split_into_segments(board, result.tokens, ends, segment_tokens=segment_tokens)
    starts = [0, *segments.ends.tolist()]
    return [segments.tokens[start:end] for start, end in pairwise(starts)]


def _segments_text(result: Trace, segments: list[Tokens]) -> str:
    if result.status is not Status.SOLVED:
        return "segments     not split: the puzzle was not solved"
    lengths = [len(tokens) for tokens in segments]
    return (
        f"segments     {len(lengths):,} of {min(lengths):,} to {max(lengths):,} tokens,"
        f" {sum(lengths):,} in all"
    )


def _outcome_text(board: Board, givens: Grid, result: Trace) -> str:
    if result.status is Status.CONFLICT:
        return f"the {conflict_text(board, givens)}"
    if result.status is Status.UNSOLVABLE:
        return "there is no solution"
    if result.status is Status.CAPPED:
        return f"stopped at {len(result.tokens):,} tokens; --max-tokens sets the limit"
    counts = count_solutions_many(board, givens[None], limit=2, max_nodes=MAX_UNIQUENESS_NODES)
    return f"solved; {_NUM_SOLUTIONS_TEXT[int(counts[0])]}"


def _show(
    console: Console, board: Board, givens: Grid, result: Trace, *, name: str, outcome: str
) -> None:
    num_givens = int(np.count_nonzero(givens))
    console.print(Text(f"{name}: {board.name}, {num_givens} givens", style="bold"))
    grids = [givens] if result.solution is None else [givens, result.solution]
    drawings = [draw_board(board, grid, givens=givens) for grid in grids]
    width = len(format_board(board, givens).splitlines()[0])
    if len(drawings) * (width + 6) <= console.width:
        table = Table.grid(padding=(0, 6, 0, 0))
        table.add_row(*drawings)
        console.print(table)
    else:
        for drawing in drawings:
            console.print(drawing, end="\n\n")
    console.print(Text(outcome, style="green" if result.solution is not None else "red"))
    if result.status is not Status.CONFLICT:
        console.print(_counts_text(board, result, num_givens=num_givens))


def _counts_text(board: Board, result: Trace, *, num_givens: int) -> str:
    tokens = result.tokens
    prompt_length = min(2 * num_givens + 2, len(tokens))
    lines = trace_lines(board, tokens[prompt_length:])
    num_output = len(tokens) - prompt_length - lines.end
    num_branches, num_dead_ends = np.sum(lines.num_candidates > 1), np.sum(tokens == NONE)
    branches = "branch" if num_branches == 1 else "branches"
    dead_ends = "dead end" if num_dead_ends == 1 else "dead ends"
    return (
        f"tokens       {len(tokens):,} = {prompt_length:,} input + {lines.end:,} trace"
        f" + {num_output:,} output\n"
        f"trace lines  {len(lines.starts):,}: {num_branches:,} {branches}"
        f" (two or more candidates), {num_dead_ends:,} {dead_ends}\n"
        f"assignments  {result.num_assignments:,}"
    )
