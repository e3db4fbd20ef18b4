"""`sudocot compile sudoku`: the Sudoku solver as a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from compile_tm.sudoku.board import BOARDS, Special
from compile_tm.sudoku.compiled import CompiledSudoku, Mode, compile_sudoku, generate_segments

DEFAULT_BITS = {"cot": 15, "scot": 11}
"""Enough for most puzzles' traces, and for every segment of 512 trace tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile the MRV backtracking solver, and tell the transformer's sizes.

    Its greedy decoding is the solver's CoT or SCoT, token for token. With --puzzle it solves one,
    with --out it is written as a Hugging Face model.

    Examples:
        sudocot compile sudoku --board 4x4 --mode cot --puzzle 1...............
        sudocot compile sudoku --board 9x9 --mode scot --out sudoku-model
    """

    board: Literal["4x4", "6x6", "9x9"] = "9x9"
    """The board."""
    mode: Mode = "scot"
    """With or without summaries."""
    bits: int | None = None
    """r: a segment, in CoT the whole sequence, may have 2^r tokens; by default 15 or, with
    summaries, 11."""
    segment_tokens: int = 512
    """Trace tokens after which a summary is due."""
    puzzle: str | None = None
    """Cells row by row, `.` or `0` for blank; exit code 1 tells that no solution was written."""
    out: Path | None = None
    """Folder to write; it must not exist."""


def main(config: Config) -> int:
    """Compile, and print, solve or write."""
    bits = DEFAULT_BITS[config.mode] if config.bits is None else config.bits
    compiled = compile_sudoku(
        BOARDS[config.board], mode=config.mode, bits=bits, segment_tokens=config.segment_tokens
    )
    console = Console(highlight=False, markup=False)
    sizes = compiled.program.sizes
    console.print(
        f"model     L {sizes.L}, H {sizes.H}, d_k {sizes.d_k}, d_v {sizes.d_v}, "
        f"d_ff {sizes.d_ff}, d {sizes.d}"
    )
    console.print(f"room      {compiled.program.max_positions:,} tokens")
    if config.out is not None:
        from compile_tm.sudoku.export import export_sudoku

        model = export_sudoku(compiled, config.out)
        size = sum(path.stat().st_size for path in config.out.iterdir())
        console.print(f"folder    {config.out}, {size / 1e6:.2f} MB", soft_wrap=True)
        console.print(f"weights   {model.num_parameters():,} are not zero")
    if config.puzzle is not None:
        return _solve(console, compiled, config.puzzle)
    return 0


def _solve(console: Console, compiled: CompiledSudoku, puzzle: str) -> int:
    from compile_tm.runtime.sparse import SparseTransformer

    givens = [int(char) if char.isdigit() else 0 for char in puzzle]
    model = SparseTransformer.from_program(compiled.program)
    segments = list(generate_segments(model, compiled, givens))
    last = segments[-1].tolist()
    is_solved = last[-1] == Special.END_OUTPUT
    digits = last[-2 - 2 * compiled.board.num_cells :][2:-1:2] if is_solved else []
    solution = "".join(compiled.board.texts[token] for token in digits) or "none"
    console.print(f"solution  {solution}")
    console.print(f"segments  {len(segments):,}")
    console.print(f"tokens    {sum(map(len, segments)):,}")
    return 0 if is_solved else 1
