"""`sudocot compile report`: bounds of the theorems and measurements, with the paper's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from rich.console import Console

from compile_tm.measure.report.render import PAGE_FILE, write_document
from data.runtime.files import check_replaceable

_TITLE = "Softmax, rounding and rotary embeddings: the paper's figures and ours"
_INTRO = (
    "Written by sudocot compile report. All numbers are computed by this command, except those in"
    " columns of the paper, which are quoted. The notation is the paper's."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write a report on the theorems, precision and positions, with the paper's numbers.

    Writes report.html (self-contained), report.md and plots/*.svg to the folder --out;
    the output is deterministic. It takes some minutes; for a short report, use --max-bits 4,
    --tightness-bits 4, --practice-bits 4 and --retrieval-digits 3.

    Examples:
        sudocot compile report --out report
        sudocot compile report --out report --max-bits 14
    """

    out: Path
    """Folder to write; an earlier report is replaced."""
    max_bits: Annotated[int, Ge(2), Le(16)] = 12
    """Maximum r for rounded rotary embeddings."""
    max_mantissa_bits: Annotated[int, Ge(1), Le(23)] = 23
    """Maximum number of mantissa bits in the plot of other encodings."""
    tightness_bits: tuple[Annotated[int, Ge(4), Le(16)], ...] = (4, 6, 8, 10)
    """Values of r for measurements of c, formats, errors and depth; even, 4 to 16, ascending."""
    tightness_tokens: Annotated[int, Ge(64), Le(65536)] = 1024
    """Maximum number of tokens of their sequences."""
    sudoku_boards: tuple[Literal["4x4", "6x6", "9x9"], ...] = ("4x4",)
    """Boards of compiled solvers for the same measurements; 9x9 takes five minutes."""

    practice_bits: Annotated[int, Ge(4), Le(16)] = 8
    """Value of r for measurements of torch's attention kernels and of attention sparsity."""
    practice_tokens: Annotated[int, Ge(64), Le(65536)] = 256
    """Maximum number of tokens of their sequences."""
    retrieval_digits: tuple[Annotated[int, Ge(1), Le(1000)], ...] = (10, 40)
    """Numbers of digits of increments that are run with approximate retrieval instead of attention;
    n digits give about 6n tokens."""

    def __post_init__(self) -> None:
        if self.practice_bits % 2:
            raise ValueError(f"practice_bits: got {self.practice_bits}, allowed are even numbers")
        if not self.retrieval_digits or min(self.retrieval_digits) < 1:
            raise ValueError(
                f"retrieval_digits: got {self.retrieval_digits}, allowed are numbers of at least 1"
            )
        bits = self.tightness_bits
        if not bits or list(bits) != sorted(set(bits) & set(range(4, 17, 2))):
            raise ValueError(
                f"tightness_bits: got {bits}, allowed are even numbers from 4 to 16, ascending"
            )


def main(config: Config) -> int:
    """Compute the sections and write the report."""
    from compile_tm.measure.practice.retrieval import missing_library
    from compile_tm.measure.report.practice_section import practice_section
    from compile_tm.measure.report.rope_section import rope_section
    from compile_tm.measure.report.sections import (
        asymptotics_section,
        bottleneck_section,
        instantiation_section,
    )
    from compile_tm.measure.report.sparsity_section import sparsity_section
    from compile_tm.measure.report.sudoku_section import sudoku_section
    from compile_tm.measure.report.tightness_section import tightness_section

    check_replaceable(config.out, marker=PAGE_FILE)
    console = Console(markup=False)
    if missing := missing_library():
        console.print(f"no approximate retrieval: {missing}", markup=False, highlight=False)
    sections = [
        instantiation_section(),
        asymptotics_section(),
        bottleneck_section(max_mantissa_bits=config.max_mantissa_bits),
        tightness_section(bits=config.tightness_bits, most_tokens=config.tightness_tokens),
        sudoku_section(boards=config.sudoku_boards),
        rope_section(max_bits=config.max_bits),
        practice_section(bits=config.practice_bits, most_tokens=config.practice_tokens),
        sparsity_section(
            bits=config.practice_bits,
            most_tokens=config.practice_tokens,
            retrieval_digits=config.retrieval_digits,
            missing=missing,
        ),
    ]
    write_document(sections, config.out, title=_TITLE, intro=_INTRO)
    where = f"report in {config.out / PAGE_FILE}"
    console.print(where, markup=False, highlight=False, soft_wrap=True)
    return 0
