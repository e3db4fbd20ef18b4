"""`sudocot compile sudoku`: compile the Sudoku solver into a transformer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le
from rich.console import Console

from compile_tm.commands.folders import (
    ArchitectureName,
    Attention,
    DtypeName,
    check_dtype,
    check_formats,
    make_conversion,
    print_folder,
    rounding_points,
    write_stock_folder,
)
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.program.compiled import Decoder
from compile_tm.program.registers import num_bits_for
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.sudoku.board import BOARDS, Special
from compile_tm.sudoku.compiled import (
    MIN_BITS,
    CompiledSudoku,
    Ids,
    compile_sudoku,
    generate_segments,
)

DEFAULT_SEGMENT_TOKENS = 512
"""Trace tokens per SCoT segment."""
DEFAULT_BITS = {"cot": 15, "scot": 11}
"""Position bits; sufficient for most CoTs, and for every segment of 512 trace tokens."""
_MAX_BITS = 20
"""Position bits of the program that determines how many a puzzle requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile the MRV backtracking solver and print the sizes of the transformer.

    Greedy decoding generates the solver's CoT or SCoT, token by token. --puzzle solves a puzzle,
    --out writes a Hugging Face model. --attention exact or denoise gives a softmax transformer with
    the theorem's c. With --puzzle, activations and attention weights are rounded to a format: bf16,
    fp16, fp32, e4m3, e5m2, or mXeY with X mantissa and Y exponent bits. Rounded attention weights
    are not covered by the theorem on exact attention.

    Examples:
        sudocot compile sudoku --board 4x4 --mode cot --puzzle 1...............
        sudocot compile sudoku --board 9x9 --mode scot --out sudoku-model
        sudocot compile sudoku --board 4x4 --attention denoise --att bf16 --puzzle 1...............
    """

    board: Literal["4x4", "6x6", "9x9"] = "9x9"
    """Board."""
    mode: Mode = "scot"
    """cot, or scot with summaries."""
    bits: Annotated[int, Ge(MIN_BITS), Le(20)] | None = None
    """Number of position bits r; a CoT or an SCoT segment has at most 2^r tokens (default: 15 for
    cot, 11 for scot)."""
    segment_tokens: Annotated[int, Ge(1), Le(2**20)] | None = None
    """Trace tokens per segment with --mode scot (default: 512)."""
    architecture: ArchitectureName | None = None
    """Model architecture: Llama or GPT-NeoX, or compiled, which requires remote code (default:
    llama, or compiled if --attention is given)."""
    dtype: DtypeName = "float32"
    """Dtype of the weights of a llama or gpt-neox; llama weights are exact in both."""
    attention: Attention | None = None
    """Compiled architecture: hardmax (default), or softmax by the theorem on exact attention or
    the theorem on denoising."""
    act: str = "bf16"
    """Activation format of a softmax model; c is representable in it."""
    att: str | None = None
    """Attention-weight format of a softmax model (default: not rounded)."""
    puzzle: str | None = None
    """Puzzle to solve: cells row by row, `.` or `0` for blanks. The exit code is 1 if no solution
    is generated, or if a softmax transformer differs from the hardmax transformer."""
    out: Path | None = None
    """Folder to write; it must not exist."""

    def __post_init__(self) -> None:
        if self.segment_tokens is not None and self.mode == "cot":
            raise ValueError(f"segment_tokens: got {self.segment_tokens}, allowed with mode scot")
        if self.architecture not in (None, "compiled") and self.attention is not None:
            raise ValueError(f"attention: got {self.attention}, allowed with architecture compiled")
        check_dtype(_architecture(self), self.dtype)
        act = None if self.act == "bf16" else self.act
        check_formats(self.attention or "hardmax", act=act, att=self.att)


def main(config: Config) -> int:
    """Compile the solver; print, solve or write."""
    bits = DEFAULT_BITS[config.mode] if config.bits is None else config.bits
    board = BOARDS[config.board]
    givens = None if config.puzzle is None else board.parse(config.puzzle)
    segment_tokens = config.segment_tokens or DEFAULT_SEGMENT_TOKENS
    compiled = compile_sudoku(board, mode=config.mode, bits=bits, segment_tokens=segment_tokens)
    console = Console(highlight=False, markup=False, emoji=False)
    sizes = compiled.program.sizes
    console.print(
        f"model     L {sizes.L}, H {sizes.H}, d_k {sizes.d_k}, d_v {sizes.d_v}, "
        f"d_ff {sizes.d_ff}, d {sizes.d}"
    )
    console.print(f"context   {compiled.program.max_positions:,} tokens")
    points = rounding_points(act=config.act, att=config.att)
    blueprint = Blueprint(program=compiled.program)
    conversion = make_conversion(blueprint, config.attention or "hardmax", points=points)
    architecture = _architecture(config)
    if config.out is not None and architecture != "compiled":
        write_stock_folder(compiled, config.out, architecture, dtype=config.dtype, words=[])
    elif config.out is not None:
        from compile_tm.hf.sudoku import export_sudoku

        model = export_sudoku(compiled, config.out, conversion=conversion, act=config.act)
        print_folder(model, config.out, conversion)
    if givens is not None:
        softmax = _softmax_model(compiled, conversion, points)
        return solve_puzzle(console, compiled, givens, model=softmax)
    return 0


def _architecture(config: Config) -> ArchitectureName:
    return config.architecture or ("llama" if config.attention is None else "compiled")


def _softmax_model(
    compiled: CompiledSudoku, conversion: Conversion | None, points: RoundingPoints
) -> Decoder | None:
    """Return the softmax transformer; None without a conversion."""
    if conversion is None:
        return None
    from compile_tm.runtime.transformer import TorchTransformer

    return TorchTransformer(compiled.program, conversion, points=points)


def _bits_for(compiled: CompiledSudoku, givens: list[int]) -> str:
    """Return the smallest r with enough positions for every segment of a puzzle."""
    larger = compile_sudoku(
        compiled.board,
        mode=compiled.mode,
        bits=_MAX_BITS,
        segment_tokens=compiled.segment_tokens or 1,
    )
    model = SparseTransformer.from_program(larger.program)
    segments = list(generate_segments(model, larger, givens))
    if segments[-1][-1] not in larger.stop_ids:
        return f"more than {_MAX_BITS}"
    # The last token of a segment is not an input and needs no position.
    return f"at least {num_bits_for(max(map(len, segments)) - 1)}"


def _until_different(segments: Iterable[Ids], expected: Iterable[Ids]) -> Iterator[Ids]:
    """Yield segments up to the first one that differs from the expected one."""
    for ids, expected_ids in zip(segments, expected, strict=True):
        yield ids
        if not np.array_equal(ids, expected_ids):
            return


def solve_puzzle(
    console: Console,
    compiled: CompiledSudoku,
    givens: list[int],
    *,
    model: Decoder | None = None,
    prints_tokens: bool = False,
) -> int:
    """Decode a puzzle, print its solution, and compare a model with the compiled program.

    Decoding stops at the first segment that differs from the program's.

    Args:
        console: Console of the output.
        compiled: The compiled solver.
        givens: Digits (S,), 0 for blank.
        model: Model to decode with; None for the program.
        prints_tokens: Print the tokens of each segment.

    Returns:
        Exit code: 0 if the puzzle is solved and the model generates the program's tokens, else 1.

    Raises:
        ValueError: the puzzle needs more position bits.
    """
    num_prompt = 2 + 2 * sum(digit > 0 for digit in givens)
    if num_prompt > compiled.program.max_positions:
        raise ValueError(
            f"bits: got {compiled.bits}, this puzzle needs {_bits_for(compiled, givens)}"
        )
    program = SparseTransformer.from_program(compiled.program)
    expected = list(generate_segments(program, compiled, givens))
    if expected[-1][-1] not in compiled.stop_ids:
        raise ValueError(
            f"bits: got {compiled.bits}, this puzzle needs {_bits_for(compiled, givens)}"
        )
    segments = expected
    if model is not None:
        generated = generate_segments(model, compiled, givens)
        segments = list(_until_different(generated, expected))
    is_same = np.array_equal(segments[-1], expected[len(segments) - 1])
    last = segments[-1].tolist()
    if prints_tokens:
        for ids in segments:
            console.print(" ".join(compiled.token_texts[token] for token in ids), soft_wrap=True)
    is_solved = last[-1] == Special.END_OUTPUT
    digits = last[-2 - 2 * compiled.board.num_cells :][2:-1:2] if is_solved else []
    solution = "".join(compiled.board.texts[token] for token in digits) or "none"
    console.print(f"solution  {solution}", soft_wrap=True)
    console.print(f"segments  {len(segments):,}")
    console.print(f"tokens    {sum(map(len, segments)):,}")
    if model is not None:
        console.print(f"machine   {'the same' if is_same else 'differs'}")
    return 0 if is_solved and is_same else 1
