"""Layers of the parts of the solver."""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.program.registers import num_bits_for
from compile_tm.sudoku.board import SudokuBoard

CHUNK_BITS = 4
"""Bits of a position that a layer of a search finds. A search has r / 4 layers, and its heads have
about 2^4 times as many key dimensions as compared bits."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Last layer of each part, for sequences of at most 2^r tokens, r = `bits`."""

    board: SudokuBoard
    bits: int
    with_summaries: bool

    @property
    def reading(self) -> int:
        """Kinds of a token and of the two tokens before it."""
        return 3

    @property
    def chunks(self) -> tuple[int, ...]:
        """Number of position bits that each layer of a search finds, highest first."""
        whole, rest = divmod(self.bits, CHUNK_BITS)
        return (CHUNK_BITS,) * whole + ((rest,) if rest else ())

    @property
    def known_bits(self) -> int:
        """Number of position bits that a search stores."""
        return self.bits - self.chunks[-1]

    @property
    def parents(self) -> int:
        """Parents of tokens."""
        return self.reading + len(self.chunks)

    @property
    def doublings(self) -> int:
        """Number of pointer doublings; n of them cover 2^n tokens of the chain.

        The chain of a token consists of the givens, the closer of the prompt and the lines of the
        stack; its first token is not needed. Without givens these are at most as many tokens as the
        longest stack has. With givens, the first one has two tokens instead of the D + 1 of the
        longest stack's first line, which compensates for the closer.
        """
        return num_bits_for(self.board.longest_stack)

    @property
    def alternative_doublings(self) -> int:
        """Number of doublings after which a dead end has the nearest line with an alternative.

        Between the second digit of that line and the dead end there are at most D - 2 further
        digits, the closer, and lines with one digit of the other S - 1 cells, that of the dead end
        included: with the second digit, 2 S + D - 2 tokens.
        """
        return num_bits_for(2 * self.board.num_cells + self.board.side - 2)

    @property
    def line_steps(self) -> int:
        """Number of layers, from 2 on, in which tokens find their lines.

        n steps cover the last 2^n - 1 tokens; a closer after a line of D digits is D + 1 tokens
        after the coordinate.
        """
        return num_bits_for(self.board.side + 2)

    @property
    def contents(self) -> int:
        """Line and parent of each token."""
        return max(self.parents, 1 + self.line_steps)

    @property
    def copies(self) -> int:
        """The token that a summary copies next: content of parents, then a search."""
        return self.contents + 1 + len(self.chunks)

    @property
    def chain(self) -> int:
        """All ancestors, and all other inputs of the last two layers."""
        gathered = self.parents + self.doublings
        return max(gathered, self.copies - 1) if self.with_summaries else gathered

    @property
    def counts(self) -> int:
        """Numbers of candidates, and the next digit."""
        return self.chain + 1

    @property
    def choice(self) -> int:
        """The next line; the last layer."""
        return self.chain + 2
