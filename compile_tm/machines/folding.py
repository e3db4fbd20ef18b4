"""Simulation of two-way infinite tapes on one-way infinite ones.

A two-way tape is folded at its cell 0. Cell c >= 0 of the folded tape holds cell c in its upper
track and cell -1-c in its lower track, as the symbol `upper/lower`; cell 0 has the mark `^`. A
plain symbol s, which occurs in the input and in untouched cells only, is read as s above a blank.
The state includes the track of the head of each tape:

    old cell        -3 -2 -1  0  1  2         upper    0  1  2
                              ^        ->     lower   -1 -2 -3

Movements in the lower track are mirrored; at the mark, a movement across the fold changes the
track.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from compile_tm.machines.problems import raise_problems
from compile_tm.machines.turing import Move, Rule, TuringMachine

_MIRRORED: dict[Move, Move] = {"L": "R", "S": "S", "R": "L"}
_UP, _DOWN = "+-"


def fold(machine: TuringMachine) -> TuringMachine:
    """Return a machine for one-way tapes that takes the same steps and leaves the folded tape.

    All its symbols but the blank are input symbols, so that its output is always defined.

    Raises:
        MachineError: names of its states or symbols are ambiguous.
    """
    plain = machine.tape_alphabet
    pairs = [f"{upper}/{lower}" for upper in plain for lower in plain]
    symbols = (*plain, *pairs, *(f"^{pair}" for pair in pairs))
    raise_problems(_ambiguous_names(machine, symbols))
    halt = machine.halting_state
    stuck = machine.stuck_state
    rules = tuple(_rules(machine))
    targets = {rule.state for rule in rules} | {rule.next_state for rule in rules}
    states = [q for q in (machine.initial_state, halt, stuck) if q is not None]
    states += sorted(targets - set(states))
    return TuringMachine(
        name=f"{machine.name}, folded",
        num_tapes=machine.num_tapes,
        states=tuple(states),
        input_alphabet=tuple(symbol for symbol in symbols if symbol != machine.blank),
        tape_alphabet=symbols,
        blank=machine.blank,
        initial_state=machine.initial_state,
        halting_state=halt,
        stuck_state=stuck,
        rules=rules,
    )


def _ambiguous_names(machine: TuringMachine, symbols: Sequence[str]) -> Iterator[str]:
    """Yield states that keep their names and are named as others with tracks, and equal symbols."""
    kept = {machine.initial_state, machine.halting_state, machine.stuck_state}
    for state in machine.states:
        for tracks in product(_UP + _DOWN, repeat=machine.num_tapes):
            name = _name(machine, state, tracks)
            if name != state and name in kept:
                yield f"states: {name!r} is reserved for the folded machine; rename it"
    for symbol, count in Counter(symbols).items():
        if count > 1:
            yield (
                f"tape_alphabet: {symbol!r} of the folded machine is ambiguous; rename symbols "
                "that contain / or ^"
            )


def _rules(machine: TuringMachine) -> Iterator[Rule]:
    """Rules of the first step, which sets the marks, and of each combination of tracks."""
    for rule in machine.rules:
        if rule.state == machine.initial_state:
            yield from _variants(machine, rule, (_UP,) * machine.num_tapes, is_first=True)
        for tracks in product(_UP + _DOWN, repeat=machine.num_tapes):
            yield from _variants(machine, rule, tracks, is_first=False)


def _variants(
    machine: TuringMachine, rule: Rule, tracks: tuple[str, ...], *, is_first: bool
) -> Iterator[Rule]:
    """A rule in given tracks, for every folded symbol that matches what it reads."""
    per_tape = [
        list(_cell_variants(machine, read, write, move, track, is_first=is_first))
        for read, write, move, track in zip(rule.read, rule.write, rule.moves, tracks, strict=True)
    ]
    state = rule.state if is_first else _name(machine, rule.state, tracks)
    for choice in product(*per_tape):
        reads, writes, moves, after = zip(*choice, strict=True)
        yield Rule(state, reads, _name(machine, rule.next_state, after), writes, moves)


def _cell_variants(
    machine: TuringMachine, read: str, write: str, move: Move, track: str, *, is_first: bool
) -> Iterator[tuple[str, str, Move, str]]:
    """(folded symbol read, folded symbol written, move, next track) of one tape."""
    mirrored = move if track == _UP else _MIRRORED[move]
    if is_first:
        after = _DOWN if move == "L" else _UP
        yield read, f"^{write}/{machine.blank}", "S" if move == "L" else move, after
        return
    for other in machine.tape_alphabet:
        old, new = (f"{read}/{other}", f"{write}/{other}")
        if track == _DOWN:
            old, new = (f"{other}/{read}", f"{other}/{write}")
        yield old, new, mirrored, track
        is_crossing = mirrored == "L"
        other_track = _DOWN if track == _UP else _UP
        yield (
            f"^{old}",
            f"^{new}",
            "S" if is_crossing else mirrored,
            (other_track if is_crossing else track),
        )
    if track == _UP:
        yield read, f"{write}/{machine.blank}", mirrored, track
    elif read == machine.blank:
        for above in machine.tape_alphabet:
            yield above, f"{above}/{write}", mirrored, track


def _name(machine: TuringMachine, state: str, tracks: Sequence[str]) -> str:
    if state in (machine.halting_state, machine.stuck_state):
        return state
    return state + "".join(tracks)
