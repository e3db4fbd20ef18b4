"""SCoT: when a summary is due, and the tokens that it copies.

A summary is the chain of the token before it, read upwards: the givens, then the stack's lines in
order. So a token of it stands for a token of the chain, and copies the one after that. It need not
know which it stands for. Let the content of a token be its line and its digit; nothing and nothing
for the first token of the segment and of the summary. The token to copy next is the latest one
whose parent has the content of the summary's token.

For let x be the token of the chain with that content. The lines of its cell are all before the
line of x, as this is live: an earlier one was dropped or replaced before. A token whose parent is
in such an earlier line was written while that was live, so before x. And of the tokens with the
parent x, lines that were retried one after the other, the latest is live. If x is the last token of
the trace, the latest is the first token of the summary, and stands for </summary>; the summary's
other tokens have the same parent, but are kept out.
"""

from __future__ import annotations

from compile_tm.program.arithmetic import subtract_power, subtract_power_in_place
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, write, zero
from compile_tm.sudoku.latest import Search, find_latest
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires, SummaryWires


def summarise(
    build: ProgramBuilder, w: SolverWires, s: SummaryWires, at: Schedule, *, segment_tokens: int
) -> None:
    """Place all that SCoT adds, but for its part in choosing the next line."""
    _due(build, w, s, segment_tokens)
    _contents(build, w, s, at)
    stage = build.stage("copying")
    search = Search(
        queries=s.wanted_line + s.wanted_digit,
        keys=s.parent_line + s.parent_digit,
        values=s.own,
        outputs=s.copied,
    )
    find_latest(
        stage,
        at.contents + 2,
        search,
        const=w.const,
        position=w.position,
        known=s.found_bits,
        chunks=at.chunks,
    )
    in_summary = s.in_summary.on
    stage.mlp(at.counts, copy(s.copied, w.next, when=in_summary))
    stage.mlp(at.counts, write((w.written, 1), when=in_summary))


def _due(build: ProgramBuilder, w: SolverWires, s: SummaryWires, segment_tokens: int) -> None:
    """Whether N or more trace tokens follow the mark that ends the prompt.

    The powers of 2 in N are taken from the position one by one; where it falls below, it stays 0,
    and the first token is no closer. The token that is N after the closer sees it there; later ones
    see that token, others nothing but zeros.
    """
    stage = build.stage("summary due")
    powers = [k for k in range(segment_tokens.bit_length()) if segment_tokens >> k & 1]
    stage.mlp(1, subtract_power(w.position, s.closer_back, powers[0]))
    for layer, power in enumerate(powers[1:], 2):
        stage.mlp(layer, subtract_power_in_place(s.closer_back, power))
    # Layer 2 has three heads without these, and three are enough for all layers.
    layer = len(powers) + 2
    stage.head(layer, queries=s.closer_back, keys=w.position, values=w.closer, outputs=s.reached)
    stage.head(layer + 1, queries=w.const, keys=s.reached, values=s.reached, outputs=s.due)


def _contents(build: ProgramBuilder, w: SolverWires, s: SummaryWires, at: Schedule) -> None:
    """Each token's content, its parent's, and whose are looked for.

    After the lines are known, those of the first tokens are set to nothing: of the segment's, and
    of a closer that follows it at once, whose `has_line` is off; and of the summary's.
    """
    stage = build.stage("contents")
    nothing = at.board.id_codes[0]
    stage.mlp(
        at.contents,
        write((w.line, nothing), when=w.has_line.off),
        write((w.line, nothing), when=w.has_line.on & s.summary_start.on),
    )
    # Without a line, a parent's content is never all that is looked for.
    layer = at.contents + 1
    stage.head(
        layer,
        queries=w.parent,
        keys=w.position,
        values=w.line + w.digit,
        outputs=s.parent_line + s.parent_digit,
    )
    is_later = w.in_block.on & w.block_start.off
    in_summary = s.in_summary.on
    stage.mlp(
        layer,
        zero(s.parent_line, when=is_later),
        copy(w.line, s.wanted_line, when=in_summary),
        copy(w.digit, s.wanted_digit, when=in_summary),
    )
