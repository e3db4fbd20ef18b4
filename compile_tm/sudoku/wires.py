"""Registers and flags of the solver.

A set of (cell, digit) pairs is S * D flags beside each other, those of a cell in a row. Lines are
named by the id of their coordinate; 0 stands for none, which is what comes before the first line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.registers import Condition, Flag, Register, Wires, join
from compile_tm.sudoku.board import SudokuBoard


@dataclass(frozen=True)
class SummaryWires:
    """What SCoT adds."""

    closer_back: Register
    """r bits: position of the token as many tokens before as a segment has trace tokens."""
    reached: Flag
    """That token ended the prompt."""
    due: Flag
    """`reached` is on here or before: the next line begins with a summary."""
    summary_start: Flag
    """<summary>, unless it is the first token."""
    in_summary: Flag
    """In the summary that ends the segment."""
    parent_line: Register
    """`line` of the parent."""
    parent_digit: Register
    """`digit` of the parent."""
    wanted_line: Register
    """`line`, at tokens of the summary."""
    wanted_digit: Register
    """`digit`, at tokens of the summary."""
    found_bits: Register
    """High bits of the position of the token after the one that the summary's token copies."""
    own: Register
    """Id of the token; that of </summary> for <summary>."""
    copied: Register
    """Id of the token to copy next."""


@dataclass(frozen=True)
class SolverWires:
    """Registers and flags; `summary` is None in CoT."""

    const: Flag
    """Always on."""
    position: Register
    """r bits: the token's position."""
    root: Flag
    """The first token; it holds nothing, so that a pointer to it points to nothing."""
    one_back: Register
    """r bits: position of the token before; 0 at 0."""
    line_back: Register
    """r bits: position 1, 2, 4, .. before."""
    coordinate: Flag
    """Coordinates."""
    digits: Flag
    """Digits."""
    closer: Flag
    """</input> and </summary>."""
    output: Flag
    """<output>."""
    block_start: Flag
    """<output>, and <summary> unless it is the first token."""
    in_block: Flag
    """In the block that ends the segment."""
    line: Register
    """Id of the coordinate of the token's line."""
    has_line: Flag
    """`line` is filled, or the token has none."""
    digit: Register
    """Code of the digit or `<none>`; at a closer, of the token before."""
    previous_digit: Register
    """`digit` of the token before."""
    after_coordinate: Flag
    """The token before is a coordinate."""
    first: Flag
    """First digit of a line outside the block: what the line assigns."""
    after_first: Flag
    """The token before is such a digit."""
    dead_end: Flag
    """`<none>`, or a closer after it."""
    after_dead_end: Flag
    """The token before is one."""
    sought: Register
    """Id of the coordinate, at coordinates outside a summary that ends the segment."""
    fresh: Register
    """The same, at lines that are no retries."""
    fresh_bits: Register
    """High bits of the position of the line that a retry replaces."""
    parent: Register
    """r bits: position of the token before, on the decision stack."""
    ancestors: tuple[Register, Register]
    """r bits each: position of the ancestor 2^j tokens back, by turns."""
    assigned: tuple[Flag, ...]
    """(cell, digit) pairs of the ancestors; then pairs that are possible; then, at (c, m + 1),
    whether c is empty and has at most m candidates."""
    alternative_line: Register
    """`line` of the latest ancestor that is the second digit of its line."""
    alternative_digit: Register
    """Its `digit`."""
    has_alternative: Flag
    """There is one."""
    solved: Flag
    """All cells are assigned."""
    possible: tuple[Flag, ...]
    """Digits that the line's cell can have."""
    retry_digit: Register
    """`alternative_digit` of the token before."""
    written: Flag
    """`next` is filled."""
    next: Register
    """Id of the next token."""
    summary: SummaryWires | None
    """SCoT."""

    @cached_property
    def pairs(self) -> Wires:
        """All of `assigned`."""
        return join(self.assigned)

    @property
    def outside_summary(self) -> Condition:
        """Not in a summary that ends the segment."""
        return self.summary.in_summary.off if self.summary else Condition()


def solver_wires(
    build: ProgramBuilder, board: SudokuBoard, *, known_bits: int, with_summaries: bool
) -> SolverWires:
    """Allocate registers and flags.

    Args:
        build: The program.
        board: The board.
        known_bits: Bits that a search keeps.
        with_summaries: SCoT.
    """
    register, flag, r = build.register, build.flag, len(build.position)
    cells = board.texts[board.coordinate_ids[0] : board.digit_ids[0]]
    digits = board.texts[board.digit_ids[0] :]
    return SolverWires(
        const=flag("const"),
        position=build.position,
        root=flag("root"),
        one_back=register("one back", r),
        line_back=register("line back", r),
        coordinate=flag("coordinate"),
        digits=flag("digits"),
        closer=flag("closer"),
        output=flag("output"),
        block_start=flag("block start"),
        in_block=flag("in block"),
        line=register("line", board.id_bits),
        has_line=flag("has line"),
        digit=register("digit", board.digit_bits),
        previous_digit=register("previous digit", board.digit_bits),
        after_coordinate=flag("after coordinate"),
        first=flag("first"),
        after_first=flag("after first"),
        dead_end=flag("dead end"),
        after_dead_end=flag("after dead end"),
        sought=register("sought", board.id_bits),
        fresh=register("fresh", board.id_bits),
        fresh_bits=register("fresh bits", known_bits),
        parent=register("parent", r),
        ancestors=(register("ancestor 0", r), register("ancestor 1", r)),
        assigned=build.flags(f"assigned {cell} {digit}" for cell in cells for digit in digits),
        alternative_line=register("alternative line", board.id_bits),
        alternative_digit=register("alternative digit", board.digit_bits),
        has_alternative=flag("has alternative"),
        solved=flag("solved"),
        possible=build.flags(f"possible {digit}" for digit in digits),
        retry_digit=register("retry digit", board.digit_bits),
        written=flag("written"),
        next=register("next", board.id_bits),
        summary=_summary_wires(build, board, known_bits) if with_summaries else None,
    )


def _summary_wires(build: ProgramBuilder, board: SudokuBoard, known_bits: int) -> SummaryWires:
    register, flag, r = build.register, build.flag, len(build.position)
    return SummaryWires(
        closer_back=register("closer back", r),
        reached=flag("reached"),
        due=flag("due"),
        summary_start=flag("summary start"),
        in_summary=flag("in summary"),
        parent_line=register("parent line", board.id_bits),
        parent_digit=register("parent digit", board.digit_bits),
        wanted_line=register("wanted line", board.id_bits),
        wanted_digit=register("wanted digit", board.digit_bits),
        found_bits=register("found bits", known_bits),
        own=register("own", board.id_bits),
        copied=register("copied", board.id_bits),
    )
