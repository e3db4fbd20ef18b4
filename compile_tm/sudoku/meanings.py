"""Layers after which the registers of the compiled solver hold their values: `registers.json`.

Meanings of registers are declared in `wires`. Coordinates that are reused, and pointers that are
doubled, have an entry for each use.
"""

from __future__ import annotations

from collections.abc import Iterator

from compile_tm.program.program import Program
from compile_tm.program.register_file import RegisterEntry
from compile_tm.program.registers import join
from compile_tm.sudoku.schedule import Schedule


def meanings(program: Program, at: Schedule, *, segment_tokens: int | None) -> list[RegisterEntry]:
    """Return the registers in the order of their first layers; every wire is in one of them.

    Args:
        program: The solver.
        at: Its schedule.
        segment_tokens: Trace tokens after which a summary is due; None in CoT.
    """
    entries = _Entries(program, at)
    found = [*_reading(entries), *_stack(entries), *_solving(entries)]
    if segment_tokens is not None:
        found += _summaries(entries, segment_tokens)
    return sorted(found, key=lambda each: each.first)


class _Entries:
    """Entries for wires of a program by their names; they last to the last layer."""

    def __init__(self, program: Program, at: Schedule) -> None:
        self._program, self.at = program, at

    def one(self, first: int, name: str) -> RegisterEntry:
        wire = self._program.find(name)
        return RegisterEntry(name, wire.kind, first, self.at.choice, wire.coordinates, wire.meaning)

    def group(self, first: int, last: int, name: str, stem: str) -> RegisterEntry:
        found = [wire for wire in self._program.wires if wire.name.startswith(f"{stem} ")]
        kind, meaning = found[0].kind, found[0].meaning
        return RegisterEntry(name, kind, first, last, join(found).coordinates, meaning)


def _reading(entries: _Entries) -> Iterator[RegisterEntry]:
    """Add the entries for kinds of a token and of the tokens before it."""
    at, one = entries.at, entries.one
    for name in ("const", "position", "coordinate", "digits", "closer", "output"):
        yield one(0, name)
    for name in ("root", "one back", "block start"):
        yield one(1, name)
    for name in ("in block", "previous digit", "after coordinate", "digit", "first", "dead end"):
        yield one(2, name)
    yield one(2, "sought")
    for name in ("after first", "after dead end", "fresh"):
        yield one(3, name)
    yield one(at.line_steps, "line back")
    yield one(at.contents if at.with_summaries else 1 + at.line_steps, "line")
    yield one(1 + at.line_steps, "has line")


def _stack(entries: _Entries) -> Iterator[RegisterEntry]:
    """Add the entries for the decision stack, a chain of tokens."""
    at, one = entries.at, entries.one
    yield one(at.parents - 1, "fresh bits")
    yield one(at.parents, "parent")
    for step in range(1, at.doublings):
        layer, back = at.parents + step, 1 << step
        found = one(layer, f"ancestor {step % 2}")
        # The register gets another pointer two steps later, and is cleared before that.
        is_kept = step >= at.doublings - 2
        yield RegisterEntry(
            f"{back} back",
            found.kind,
            layer,
            found.last if is_kept else layer,
            found.coordinates,
            f"Position {back} tokens back on the stack: twice {back // 2} tokens back.",
        )
    before = at.parents + at.doublings - 1
    yield entries.group(before, before, "assigned", "assigned")
    reached = at.parents + min(at.alternative_doublings, at.doublings)
    for name in ("alternative line", "alternative digit", "has alternative"):
        yield one(reached, name)


def _solving(entries: _Entries) -> Iterator[RegisterEntry]:
    """Add the entries for candidates, counts, and the next token."""
    at, one = entries.at, entries.one
    pairs = entries.group(0, 0, "", "assigned").coordinates
    yield RegisterEntry(
        "candidates",
        "pairs",
        at.chain,
        at.chain,
        pairs,
        "Candidates of each cell, if the line ended here; an assigned cell counts as one with all.",
    )
    yield one(at.chain, "solved")
    yield entries.group(at.chain, at.choice, "possible", "possible")
    yield RegisterEntry(
        "counts",
        "counts",
        at.counts,
        at.choice,
        pairs,
        "Number of candidates of each cell.",
    )
    yield one(at.counts, "retry digit")
    yield one(at.counts, "written")
    yield one(at.choice, "next")


def _summaries(entries: _Entries, segment_tokens: int) -> Iterator[RegisterEntry]:
    """Add the entries for summaries."""
    at, one = entries.at, entries.one
    steps = segment_tokens.bit_count()
    yield one(0, "own")
    yield one(1, "summary start")
    yield one(2, "in summary")
    yield one(steps, "closer back")
    yield one(steps + 2, "reached")
    yield one(steps + 3, "due")
    for name in ("parent line", "parent digit", "wanted line", "wanted digit"):
        yield one(at.contents + 1, name)
    yield one(at.copies - 1, "found bits")
    yield one(at.copies, "copied")
