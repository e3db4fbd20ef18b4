"""What the registers of the compiled solver hold, and after which layers: `registers.json`.

The file lies in the model's folder, for whoever looks inside. It needs nothing but itself:

    {"format": 1, "registers": [
        {"name": "solved", "kind": "flag", "layers": [15, 17], "coordinates": [920],
         "meaning": "All cells are assigned."}, ...]}

`layers` are the first and the last after which the register holds what `meaning` says; 0 is the
embedding, so that they count as `hidden_states` of transformers do. Where coordinates are used
again, or a pointer is doubled, each use is a register of its own. Kinds, with D digits and S cells:

    flag        1 coordinate: 0 or 1
    number      bits -1 and 1, least significant first; all 0 for no number
    position    a number: a position in the sequence
    token       a number: the id of a token, 0 for none
    digit       a number: 0 for no digit, a digit, or D + 1 for `<none>`
    digits      D flags, from 1 to D
    pairs       S D flags, for each cell in row-major order its digits
    counts      S D flags, for each cell whether it has at most 0, 1, .., D - 1 candidates

Softmax activations are within 1/4 of these values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from compile_tm.conversion.settings import Conversion
from compile_tm.program.registers import Flag, join
from compile_tm.sudoku.compiled import CompiledSudoku
from compile_tm.sudoku.schedule import Schedule

REGISTERS_FILE = "registers.json"
_FORMAT = 1

Kind = Literal["flag", "number", "position", "token", "digit", "digits", "pairs", "counts"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a register of the program holds."""

    name: str
    kind: Kind
    first: int
    """Layer after which it holds that first; 0 is the embedding."""
    last: int
    """The last such layer."""
    coordinates: tuple[int, ...]
    text: str
    """A sentence."""


def registers_json(
    compiled: CompiledSudoku, conversion: Conversion | None
) -> dict[str, int | list[dict[str, str | list[int]]]]:
    """The content of the file, for the layers of the converted model."""
    denoised = frozenset() if conversion is None else conversion.denoised

    def converted(layer: int) -> int:
        """A denoised layer becomes two, of which the second ends as the one did."""
        return layer + sum(other <= layer for other in denoised)

    return {
        "format": _FORMAT,
        "registers": [
            {
                "name": each.name,
                "kind": each.kind,
                "layers": [converted(each.first), converted(each.last)],
                "coordinates": list(each.coordinates),
                "meaning": each.text,
            }
            for each in meanings(compiled)
        ],
    }


def meanings(compiled: CompiledSudoku) -> list[Meaning]:
    """Registers in the order of their first layers; every wire of the program is in one."""
    at = Schedule(compiled.board, compiled.bits, compiled.mode == "scot")
    found = [*_reading(compiled, at), *_stack(compiled, at), *_solving(compiled, at)]
    if compiled.segment_tokens is not None:
        found += _summaries(compiled, at, compiled.segment_tokens)
    return sorted(found, key=lambda each: each.first)


class _Wires:
    """Makes meanings of a program's wires, by their names; most last to the last layer."""

    def __init__(self, compiled: CompiledSudoku, at: Schedule) -> None:
        self._program, self._last = compiled.program, at.choice

    def one(
        self, first: int, name: str, text: str, kind: Kind = "flag", *, as_name: str | None = None
    ) -> Meaning:
        wire = self._program.find(name)
        assert isinstance(wire, Flag) == (kind == "flag"), name
        return Meaning(as_name or name, kind, first, self._last, wire.coordinates, text)

    def many(
        self, first: int, last: int, name: str, kind: Kind, wires: list[str], text: str
    ) -> Meaning:
        coordinates = join(map(self._program.find, wires)).coordinates
        return Meaning(name, kind, first, last, coordinates, text)


def _reading(compiled: CompiledSudoku, at: Schedule) -> Iterator[Meaning]:
    """What a token is, and what stands before it."""
    one = _Wires(compiled, at).one
    farthest = 1 << at.line_steps - 1
    known = at.contents if at.with_summaries else 1 + at.line_steps
    yield one(0, "const", "Always on.")
    yield one(0, "position", "The token's position in the segment.", "position")
    yield one(0, "coordinate", "The token is a coordinate.")
    yield one(0, "digits", "The token is a digit.")
    yield one(0, "closer", "The token is </input> or </summary>.")
    yield one(0, "output", "The token is <output>.")
    yield one(1, "root", "The first token, which holds nothing: chains end in it.")
    yield one(1, "one back", "Position of the token before; 0 at 0.", "position")
    yield one(1, "block start", "<output>, or the <summary> that ends the segment.")
    yield one(2, "in block", "In the output or the summary that ends the segment.")
    yield one(2, "previous digit", "Digit of the token before.", "digit")
    yield one(2, "after coordinate", "The token before is a coordinate.")
    yield one(
        2,
        "digit",
        "The digit or <none> that the token is; after a line that ends the prompt, the line's.",
        "digit",
    )
    yield one(2, "first", "First digit of a line: the one that the line assigns.")
    yield one(2, "dead end", "<none>, or the mark that ends the prompt after it.")
    yield one(
        2,
        "sought",
        "Coordinate whose line a new line may replace; none in the last block.",
        "token",
    )
    yield one(3, "after first", "The token before is the first digit of a line.")
    yield one(3, "after dead end", "The token before is a dead end: a coordinate here is a retry.")
    yield one(3, "fresh", "The coordinate of a line that is no retry.", "token")
    yield one(
        at.line_steps,
        "line back",
        f"Position {farthest} tokens back; from layer 1 on 1, 2, .. tokens: where lines are read.",
        "position",
    )
    yield one(known, "line", "Coordinate of the line that the token is in.", "token")
    yield one(1 + at.line_steps, "has line", "The token's line is known, or it has none.")


def _stack(compiled: CompiledSudoku, at: Schedule) -> Iterator[Meaning]:
    """The chain of tokens that is the decision stack."""
    wires = _Wires(compiled, at)
    one = wires.one
    yield one(
        at.parents - 1,
        "fresh bits",
        "High bits of the position of the line that this one replaces, itself if none.",
        "number",
    )
    yield one(
        at.parents,
        "parent",
        "Position of the token before this one on the decision stack; the chain of parents is it.",
        "position",
    )
    for step in range(1, at.doublings):
        layer, back = at.parents + step, 1 << step
        found = one(
            layer,
            f"ancestor {step % 2}",
            f"Position {back} tokens back on the stack: {back // 2} back of the one {back // 2} "
            "back.",
            "position",
            as_name=f"{back} back",
        )
        # Two steps later the register has another pointer, so it is emptied but for the last two.
        is_kept = step >= at.doublings - 2
        last = found.last if is_kept else layer
        yield Meaning(found.name, found.kind, layer, last, found.coordinates, found.text)
    before = at.parents + at.doublings - 1
    yield wires.many(
        before,
        before,
        "assigned",
        "pairs",
        _pairs(compiled),
        f"Digits assigned by the latest {1 << at.doublings - 1} tokens of givens and stack.",
    )
    reached = at.parents + min(at.alternative_doublings, at.doublings)
    yield one(
        reached,
        "alternative line",
        "Coordinate of the nearest line on the stack with a candidate left: a retry's.",
        "token",
    )
    yield one(reached, "alternative digit", "The candidate that is tried there next.", "digit")
    yield one(reached, "has alternative", "There is such a line.")


def _solving(compiled: CompiledSudoku, at: Schedule) -> Iterator[Meaning]:
    """Candidates, counts, and the token that follows."""
    wires, board = _Wires(compiled, at), compiled.board
    one, many = wires.one, wires.many
    digits = [f"possible {digit}" for digit in range(1, board.side + 1)]
    yield many(
        at.chain,
        at.chain,
        "candidates",
        "pairs",
        _pairs(compiled),
        "Candidates of each cell, if the line ended here; an assigned cell counts as one with all.",
    )
    yield one(at.chain, "solved", "All cells are assigned.")
    yield many(
        at.chain,
        at.choice,
        "possible",
        "digits",
        digits,
        "Candidates of the line's own cell, those that it has written included.",
    )
    yield many(
        at.counts,
        at.choice,
        "counts",
        "counts",
        _pairs(compiled),
        "How many candidates each cell has.",
    )
    yield one(at.counts, "retry digit", "Alternative digit of the token before.", "digit")
    yield one(at.counts, "written", "The line or block goes on; off where the next line is chosen.")
    yield one(at.choice, "next", "The token that follows.", "token")


def _summaries(compiled: CompiledSudoku, at: Schedule, segment_tokens: int) -> Iterator[Meaning]:
    """What SCoT adds."""
    one = _Wires(compiled, at).one
    steps = segment_tokens.bit_count()
    content = at.contents + 1
    yield one(0, "own", "The token; </summary> for <summary>.", "token")
    yield one(1, "summary start", "The <summary> that ends the segment.")
    yield one(2, "in summary", "In the summary that ends the segment.")
    yield one(
        steps,
        "closer back",
        f"Position {segment_tokens} tokens back; none near the start.",
        "position",
    )
    yield one(steps + 2, "reached", f"The mark that ends the prompt is {segment_tokens} back.")
    yield one(steps + 3, "due", "Reached, here or before: the next line is a summary.")
    yield one(content, "parent line", "Line of the parent.", "token")
    yield one(content, "parent digit", "Digit of the parent.", "digit")
    yield one(content, "wanted line", "In a summary: line of the token to go on from.", "token")
    yield one(content, "wanted digit", "In a summary: digit of that token.", "digit")
    yield one(
        at.copies - 1,
        "found bits",
        "High bits of the position of the token to copy; its parent has what is wanted.",
        "number",
    )
    yield one(at.copies, "copied", "The token to copy next in a summary.", "token")


def _pairs(compiled: CompiledSudoku) -> list[str]:
    """Names of the flags of all pairs of a cell and a digit."""
    texts = compiled.board.texts
    cells = [texts[token] for token in compiled.board.coordinate_ids]
    digits = [texts[token] for token in compiled.board.digit_ids]
    return [f"assigned {cell} {digit}" for cell in cells for digit in digits]
