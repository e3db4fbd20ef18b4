"""The decision stack as a chain of tokens, each with a pointer to the one before it.

The parent of a token is the token before it, but for the coordinate of a retry: the line replaces
the latest fresh line f of its cell, so its parent is that of f, the token before f. For while the
cell is assigned no other fresh line of it can be written, and whatever stood above f is gone. As f
is the latest fresh token with the coordinate, up to and including the token itself, fresh lines
find themselves, and so do tokens that look for nothing. So for all, the parent is what `one_back`
holds where they find. Tokens of the last block have the parent of its first token, the last one of
the trace, so that to all of them the stack is the one where the block begins.

So the chain of a token is its prompt's lines and its stack's, in order. After n steps of pointer
doubling a token has joined what 2^n tokens of its chain hold: a step adds what the ancestor 2^(n-1)
tokens back has joined, and that ancestor's pointer makes the one for the next step. A cell is
assigned once on a chain, so sets that are joined are disjoint. The chain ends in the root, which
holds nothing and points to itself.
"""

from __future__ import annotations

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import zero
from compile_tm.sudoku.latest import Search, find_latest
from compile_tm.sudoku.reading import join_nearest
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires


def find_parents(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """A layer for each chunk of a position."""
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

    That line is the one to retry after a dead end: of its digits the first is tried, the second
    comes next.
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
            # Two steps on, the register is written again.
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
