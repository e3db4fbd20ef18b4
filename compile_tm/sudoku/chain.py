"""The decision stack as a linked chain of tokens.

The parent of a token is the token before it, except for the coordinate of a retry. A retry replaces
the latest fresh line f of its cell, so its parent is that of f, the token before f: as long as the
cell is assigned, no other fresh line of it is written, and all lines above f have been dropped. f
is the latest fresh token with the coordinate, including the token itself, so fresh lines find
themselves, as do tokens with an empty query. Hence the parent is `one_back` of the token found, for
all tokens. Tokens of the last block have the parent of the block's first token, which is the last
token of the trace, so that they share the stack at the beginning of the block.

The chain of a token thus consists of the lines of its prompt and of its stack, in order. After n
steps of pointer doubling, a token holds the union of the sets of 2^n tokens of its chain: each step
adds the union of the ancestor 2^(n-1) tokens back, whose pointer gives the one for the next step. A
cell is assigned once on a chain, so these sets are disjoint. The chain ends in the root, which has
the empty set and points to itself.
"""

from __future__ import annotations

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import zero
from compile_tm.sudoku.latest import Search, find_latest
from compile_tm.sudoku.reading import join_nearest
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires


def find_parents(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """Place the search for parents, one layer for each chunk of a position."""
    search = Search(
        queries=w.sought,
        keys=w.fresh,
        values=w.one_back,
        outputs=w.parent,
        preferred=(w.in_block, w.block_start),
    )
    find_latest(
        build.stage("parent"),
        at.reading + 1,
        search,
        const=w.const,
        position=w.position,
        known=w.fresh_bits,
        chunks=at.chunks,
    )


def gather_chain(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """Pointer doubling: assigned pairs, and the nearest line with an alternative.

    That line is the one to retry after a dead end; its first digit has been tried, the second one
    is next.
    """
    stage = build.stage("chain")
    for step in range(at.doublings):
        layer = at.parents + 1 + step
        pointer = w.ancestor[step % 2] if step else w.parent
        doubled = w.ancestor[(step + 1) % 2]
        is_last = step == at.doublings - 1
        stage.head(
            layer,
            queries=pointer,
            keys=w.position,
            values=w.pairs if is_last else w.pairs + pointer,
            outputs=w.pairs if is_last else w.pairs + doubled,
        )
        if 0 < step < at.doublings - 2:
            # The register is written again two steps later.
            stage.mlp(layer, zero(pointer))
        if step < at.alternative_doublings:
            join_nearest(
                stage,
                w,
                layer,
                pointer=pointer,
                has=w.has_alternative,
                wires=w.alternative_line + w.alternative_digit,
            )
