"""Which part of the program is done by which layer, and the sizes that follow."""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.program.registers import num_bits_for
from compile_tm.sudoku.board import SudokuBoard

CHUNK_BITS = 4
"""Bits of a position that a layer of a search finds: a search takes r / 4 layers, and its heads
about 2^4 times the coordinates that they compare."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Last layers of the parts, for sequences of up to 2^r tokens, r = `bits`."""

    board: SudokuBoard
    bits: int
    with_summaries: bool

    @property
    def reading(self) -> int:
        """What a token is, and what the two tokens before it are."""
        return 3

    @property
    def chunks(self) -> tuple[int, ...]:
        """Bits of a position that each layer of a search finds, the highest first."""
        whole, rest = divmod(self.bits, CHUNK_BITS)
        return (CHUNK_BITS,) * whole + ((rest,) if rest else ())

    @property
    def known_bits(self) -> int:
        """Bits of a position that a search has to keep."""
        return self.bits - self.chunks[-1]

    @property
    def parents(self) -> int:
        """The parent of each token."""
        return self.reading + len(self.chunks)

    @property
    def doublings(self) -> int:
        """Steps of pointer doubling: after n of them a token has what 2^n tokens of the chain hold.

        The chain that ends with a token is the givens, the mark that ends the prompt, and the
        stack's lines. What is wanted of it begins with the second token. Without givens these are
        at most the tokens of the longest stack. With them, the first given has two tokens in place
        of the D + 1 of the longest stack's first line, which makes room for the mark.
        """
        return num_bits_for(self.board.longest_stack)

    @property
    def alternative_doublings(self) -> int:
        """Steps after which a dead end knows the nearest line with an alternative.

        Between its second digit and the dead end there are at most D - 2 further digits, the mark
        that ends the prompt, and lines of one token each, that of the dead end included, of the
        other S - 1 cells. With the second digit that is 2 S + D - 2 tokens.
        """
        return num_bits_for(2 * self.board.num_cells + self.board.side - 2)

    @property
    def line_steps(self) -> int:
        """Layers, from 2 on, in which tokens learn their lines.

        Step n reaches 2^(n-1) tokens back, so that all know what is 2^n - 1 back; the mark after a
        line of D digits is D + 1 after its coordinate.
        """
        return num_bits_for(self.board.side + 2)

    @property
    def contents(self) -> int:
        """Each token's line and parent."""
        return max(self.parents, 1 + self.line_steps)

    @property
    def copies(self) -> int:
        """The token that a summary copies next: its parent's content, then a search."""
        return self.contents + 1 + len(self.chunks)

    @property
    def chain(self) -> int:
        """All ancestors; and all that is needed for the last two layers."""
        gathered = self.parents + self.doublings
        return max(gathered, self.copies - 1) if self.with_summaries else gathered

    @property
    def counts(self) -> int:
        """Numbers of candidates; the digit to write next."""
        return self.chain + 1

    @property
    def choice(self) -> int:
        """The next line: the last layer."""
        return self.chain + 2
