"""Registers and flags of the solver; see `program.wires` on declarations.

A set of (cell, digit) pairs is S * D adjacent flags, those of one cell next to each other. A line
is named by the id of its coordinate; 0 stands for no line, as before the first one.

Sizes: `r` bits of a position, `id_bits` of a token id, `digit_bits` of a digit code (see
`SudokuBoard.digit_codes`), `known_bits` that a search keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.registers import Condition, Flag, Register, Wires, join
from compile_tm.program.wires import allocate, flag, flags, register
from compile_tm.sudoku.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class SummaryWires:
    """Registers and flags that SCoT adds."""

    closer_back: Annotated[
        Register,
        register(
            "r",
            "Position {segment_tokens} tokens back; 0 at positions up to {segment_tokens}.",
            kind="position",
        ),
    ]
    reached: Annotated[Flag, flag("The prompt ends {segment_tokens} tokens back.")]
    due: Annotated[Flag, flag("`reached` at or before the token: the next line is a summary.")]
    summary_start: Annotated[Flag, flag("The <summary> that ends the segment.")]
    in_summary: Annotated[Flag, flag("In the summary that ends the segment.")]
    parent_line: Annotated[Register, register("id_bits", "Line of the parent.", kind="token")]
    parent_digit: Annotated[Register, register("digit_bits", "Digit of the parent.", kind="digit")]
    wanted_line: Annotated[
        Register,
        register("id_bits", "In a summary: line of the copied token.", kind="token"),
    ]
    wanted_digit: Annotated[
        Register, register("digit_bits", "In a summary: digit of the copied token.", kind="digit")
    ]
    found_bits: Annotated[
        Register,
        register(
            "known_bits",
            "High bits of the position of the next token to copy, a child of the copied one.",
        ),
    ]
    own: Annotated[
        Register, register("id_bits", "The token; </summary> for <summary>.", kind="token")
    ]
    copied: Annotated[
        Register, register("id_bits", "The token to copy next in a summary.", kind="token")
    ]


@dataclass(frozen=True, kw_only=True)
class SolverWires:
    """Registers and flags of the solver; `summary` is None in CoT."""

    const: Annotated[Flag, flag("Always on.")]
    position: Register
    root: Annotated[Flag, flag("The first token: empty, and the end of every chain.")]
    one_back: Annotated[
        Register, register("r", "Position of the token before; 0 at 0.", kind="position")
    ]
    line_back: Annotated[
        Register,
        register(
            "r",
            "Position {farthest_back} tokens back; in the layers before, from layer 1 on, 1, 2, .. "
            "tokens back.",
            kind="position",
        ),
    ]
    coordinate: Annotated[Flag, flag("The token is a coordinate.")]
    digits: Annotated[Flag, flag("The token is a digit.")]
    closer: Annotated[Flag, flag("The token is </input> or </summary>.")]
    output: Annotated[Flag, flag("The token is <output>.")]
    block_start: Annotated[Flag, flag("<output>, or the <summary> that ends the segment.")]
    in_block: Annotated[Flag, flag("In the output or the summary that ends the segment.")]
    line: Annotated[
        Register, register("id_bits", "Coordinate of the line that the token is in.", kind="token")
    ]
    has_line: Annotated[Flag, flag("The token's line is known, or it has none.")]
    digit: Annotated[
        Register,
        register(
            "digit_bits",
            "Digit or <none> of the token; at the token that ends the prompt, of the last line.",
            kind="digit",
        ),
    ]
    previous_digit: Annotated[
        Register, register("digit_bits", "Digit of the token before.", kind="digit")
    ]
    after_coordinate: Annotated[Flag, flag("The token before is a coordinate.")]
    first: Annotated[Flag, flag("First digit of a line: the one that the line assigns.")]
    after_first: Annotated[Flag, flag("The token before is the first digit of a line.")]
    dead_end: Annotated[Flag, flag("<none>, or the end of the prompt directly after it.")]
    after_dead_end: Annotated[
        Flag, flag("The token before is a dead end, so that a coordinate is a retry.")
    ]
    sought: Annotated[
        Register,
        register(
            "id_bits",
            "Coordinate whose line a new line may replace; none in the last block.",
            kind="token",
        ),
    ]
    fresh: Annotated[
        Register, register("id_bits", "Coordinate of a line that is not a retry.", kind="token")
    ]
    fresh_bits: Annotated[
        Register,
        register(
            "known_bits",
            "High bits of the position of the replaced line, or of the line itself.",
        ),
    ]
    parent: Annotated[
        Register,
        register(
            "r",
            "Position of the previous token on the decision stack, which is the chain of parents.",
            kind="position",
        ),
    ]
    ancestor: Annotated[
        tuple[Register, Register],
        register(
            "r",
            "Position of an ancestor on the decision stack.",
            kind="position",
            labels="by turns",
        ),
    ]
    assigned: Annotated[
        tuple[Flag, ...],
        flags(
            "pairs",
            "Digits assigned by the latest {gathered} tokens of givens and stack.",
            kind="pairs",
        ),
    ]
    alternative_line: Annotated[
        Register,
        register(
            "id_bits",
            "Coordinate of the latest line on the stack with an untried candidate: of a retry.",
            kind="token",
        ),
    ]
    alternative_digit: Annotated[
        Register, register("digit_bits", "First untried candidate of that line.", kind="digit")
    ]
    has_alternative: Annotated[Flag, flag("A line on the stack has an untried candidate.")]
    solved: Annotated[Flag, flag("All cells are assigned.")]
    possible: Annotated[
        tuple[Flag, ...],
        flags(
            "digits",
            "Candidates of the line's cell, including those already written.",
            kind="digits",
        ),
    ]
    retry_digit: Annotated[
        Register, register("digit_bits", "Alternative digit of the token before.", kind="digit")
    ]
    written: Annotated[Flag, flag("The line or block continues; else the next line is chosen.")]
    next: Annotated[Register, register("id_bits", "The next token.", kind="token")]
    summary: SummaryWires | None

    @cached_property
    def pairs(self) -> Wires:
        """All of `assigned`."""
        return join(self.assigned)

    @property
    def outside_summary(self) -> Condition:
        """Not in a summary that ends the segment."""
        return self.summary.in_summary.off if self.summary else Condition()


def solver_wires(build: ProgramBuilder, at: Schedule, *, segment_tokens: int) -> SolverWires:
    """Allocate the registers and flags of a schedule."""
    board = at.board
    values = {
        "r": at.bits,
        "id_bits": board.id_bits,
        "digit_bits": board.digit_bits,
        "known_bits": at.known_bits,
        "farthest_back": 1 << at.line_steps - 1,
        "gathered": 1 << at.doublings - 1,
        "segment_tokens": segment_tokens,
    }
    cells = board.texts[board.coordinate_ids[0] : board.digit_ids[0]]
    digits = board.texts[board.digit_ids[0] :]
    labels = {
        "by turns": range(2),
        "pairs": [f"{cell} {digit}" for cell in cells for digit in digits],
        "digits": digits,
    }
    w = allocate(
        SolverWires, build, values=values, labels=labels, position=build.position, summary=None
    )
    if not at.with_summaries:
        return w
    return replace(w, summary=allocate(SummaryWires, build, values=values))
