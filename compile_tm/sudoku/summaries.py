"""SCoT: when a summary is due, and the tokens that it copies.

A summary is the chain of the token before it: the givens, then the lines of the stack in order. A
token of the summary represents a token of the chain, and is followed by a copy of the next one.
Which token it represents need not be stored. Let the content of a token be its line and its digit,
empty for the first tokens of the segment and of the summary. The token to copy next is the latest
one whose parent has the content of the summary's token.

Proof. Let x be the token of the chain with that content. All other lines of its cell precede the
line of x, which is live: they were dropped or replaced before. A token whose parent is in such a
line was written while that line was live, so before x. Of the tokens with the parent x, lines that
were retried one after the other, the latest is live. If x is the last token of the trace, the
latest is the first token of the summary, which represents </summary>; the other tokens of the
summary have the same parent but are excluded.
"""

from __future__ import annotations

from compile_tm.program.arithmetic import subtract_power, subtract_power_in_place
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, write, zero
from compile_tm.sudoku.latest import Search, find_latest
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires, SummaryWires


def summarize(
    build: ProgramBuilder, w: SolverWires, s: SummaryWires, at: Schedule, *, segment_tokens: int
) -> None:
    """Place the parts that SCoT adds, except for the choice of the next line."""
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
    """Detect that at least N trace tokens follow the closer of the prompt.

    The powers of 2 in N are subtracted from the position one by one; the difference saturates at 0,
    and the first token is no closer. The token N positions after the closer attends to it, later
    ones attend to that token, and earlier ones average over zeros.
    """
    stage = build.stage("summary due")
    powers = [k for k in range(segment_tokens.bit_length()) if segment_tokens >> k & 1]
    stage.mlp(1, subtract_power(w.position, s.closer_back, powers[0]))
    for layer, power in enumerate(powers[1:], 2):
        stage.mlp(layer, subtract_power_in_place(s.closer_back, power))
    # Layer 2 has three heads already, and no layer is to have more.
    layer = len(powers) + 2
    stage.head(layer, queries=s.closer_back, keys=w.position, values=w.closer, outputs=s.reached)
    stage.head(layer + 1, queries=w.const, keys=s.reached, values=s.reached, outputs=s.due)


def _contents(build: ProgramBuilder, w: SolverWires, s: SummaryWires, at: Schedule) -> None:
    """Contents of tokens and of their parents, and the content that a summary searches for.

    Once lines are known, that of the first token of the segment, of a closer directly after it,
    whose `has_line` is off, and of the first token of the summary are set to 0.
    """
    stage = build.stage("contents")
    nothing = at.board.id_codes[0]
    stage.mlp(
        at.contents,
        write((w.line, nothing), when=w.has_line.off),
        write((w.line, nothing), when=w.has_line.on & s.summary_start.on),
    )
    # A parent without a line never matches a whole query.
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
