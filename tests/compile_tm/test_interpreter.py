"""Tests of machine runs: random machines against the definition, and the examples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from compile_tm.machines import examples
from compile_tm.machines.display import run_lines
from compile_tm.machines.folding import fold
from compile_tm.machines.interpreter import LeftEdge, Run, Status, run_machine
from compile_tm.machines.problems import MachineError
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.turing import Rule, TuringMachine
from solver.jit import IS_JIT
from tests.compile_tm.naive_turing import configurations


def output(machine: TuringMachine, word: str) -> str:
    run = run_machine(machine, word)
    assert run.output is not None, (run.status, word)
    return "".join(run.output)


def unfold(cells: Sequence[str], *, blank: str) -> tuple[list[str], int]:
    """The two-way tape of a folded one.

    Args:
        cells: Symbols of the folded tape from cell 0 on.
        blank: The blank symbol.

    Returns:
        Symbols of the two-way tape, and which of its cells is the first of them.
    """
    split = [cell.removeprefix("^").split("/") if "/" in cell else [cell, blank] for cell in cells]
    lower = [below for _, below in split]
    return [*reversed(lower), *(above for above, _ in split)], -len(lower)


def nonblank(run: Run) -> tuple[dict[int, str], ...]:
    names = run.machine.tape_alphabet
    return tuple(
        {n + run.first_cell: names[s] for n, s in enumerate(tape) if names[s] != run.machine.blank}
        for tape in run.tapes.tolist()
    )


@pytest.mark.parametrize("left_edge", ["stay", "two-way"])
def test_runs_equal_the_definition_on_random_machines(left_edge: LeftEdge) -> None:
    rng = np.random.default_rng(1)
    for _ in range(150 if IS_JIT else 30):
        machine = random_machine(rng, RandomMachineConfig(max_tapes=3, max_states=5))
        word = random_word(rng, machine)
        run = run_machine(machine, word, max_steps=200, left_edge=left_edge)
        path = configurations(machine, word, max_steps=200, is_two_way=left_edge == "two-way")
        assert run.num_steps == len(path) - 1
        assert run.final_state == path[-1].state
        assert run.heads.tolist() == [list(c.heads) for c in path]
        assert run.final_heads.tolist() == list(path[-1].heads)
        assert nonblank(run) == path[-1].tapes
        cells = [0, *(head for c in path for head in c.heads)]
        assert run.space == max(len(word) - 1, *cells) - min(cells) + 1
        status = Status.HALTED if path[-1].state == "halt" else Status.STEP_LIMIT
        assert run.status is status


def test_unrecorded_runs_end_alike_and_tapes_grow() -> None:
    rows = [("q", "*", "q", "1", "R")]
    machine = examples.one_way_machine(
        "right", [*rows, ("q", "*", "halt", "1", "R")], symbols="1", inputs="1"
    )
    for record in (True, False):
        run = run_machine(machine, max_steps=1000, record=record)
        assert (run.status, run.num_steps, run.space) == (Status.STEP_LIMIT, 1000, 1001)
    with pytest.raises(ValueError, match="not recorded"):
        _ = run.heads
    with pytest.raises(ValueError, match="max_steps: got -1"):
        run_machine(machine, max_steps=-1)


def test_three_ways_at_the_left_edge() -> None:
    rows = [("q", "*", "p", "1", "L"), ("p", "*", "halt", "1", "S")]
    machine = examples.one_way_machine("left", rows, symbols="1", inputs="1")
    stay = run_machine(machine)
    assert (stay.output, stay.space) == (("1",), 1)
    error = run_machine(machine, left_edge="error")
    assert (error.status, error.num_steps, error.output) == (Status.LEFT_EDGE, 0, None)
    both = run_machine(machine, left_edge="two-way")
    assert (both.final_heads.tolist(), both.space) == ([-1], 2)


def test_missing_rules_end_in_the_stuck_state_or_where_they_are_missed() -> None:
    rows = [("q", "1", "q", "1", "R")]
    machine = examples.one_way_machine(
        "partial", [*rows, ("p", "1", "halt", "1", "S")], symbols="1", inputs="1"
    )
    run = run_machine(machine, "11")
    assert (run.status, run.num_steps, run.final_state) == (Status.STUCK, 2, "q")
    fields = {name: getattr(machine, name) for name in machine.__dataclass_fields__}
    fields |= {"states": (*machine.states, "stuck"), "stuck_state": "stuck"}
    run = run_machine(TuringMachine(**fields), "11")
    assert (run.status, run.num_steps, run.final_state) == (Status.STUCK, 3, "stuck")


def test_output_needs_a_word_of_input_symbols() -> None:
    for rows, out in (
        ([("q", "1", "halt", "_", "S")], None),
        ([("q", "1", "halt", "x", "S")], None),
        ([("q", "1", "halt", "1", "S")], ("1", "1")),
    ):
        machine = examples.one_way_machine("out", rows, symbols="1x", inputs="1")
        assert run_machine(machine, "11").output == out


def test_arithmetic() -> None:
    for n in range(20):
        assert output(examples.unary_increment(), "1" * n) == "1" * (n + 1)
        assert output(examples.binary_increment(), f"{n:b}") == f"{n + 1:b}"
    for x, y in product(range(9), repeat=2):
        assert output(examples.binary_addition(), f"{x:b}+{y:b}") == f"{x + y:b}"
    for x, y in product(range(4), repeat=2):
        assert output(examples.unary_multiplication(), "1" * x + "x" + "1" * y) == "1" * x * y


def test_words() -> None:
    for length in range(5):
        for word in map("".join, product("abc", repeat=length)):
            assert output(examples.sorting(), word) == "".join(sorted(word))
            if "c" not in word:
                answer = "y" if word == word[::-1] else "n"
                assert output(examples.palindromes(), word) == answer
                assert output(examples.two_tape_copy("ab"), word) == word + word


@pytest.mark.parametrize(
    ("num_states", "steps", "ones"), [(3, 21, 5), (4, 107, 13), (5, 47_176_870, 4098)]
)
def test_busy_beavers_on_two_way_and_on_folded_tapes(
    num_states: int, steps: int, ones: int
) -> None:
    if not IS_JIT and steps > 1000:
        pytest.skip("47 million steps need compiled kernels")
    beaver = examples.busy_beaver(num_states)
    run = run_machine(beaver, max_steps=10**8, record=False, left_edge="two-way")
    assert (run.status, run.num_steps) == (Status.HALTED, steps)
    symbols = [beaver.tape_alphabet[s] for s in run.tapes[0].tolist()]
    assert symbols.count("1") == ones
    folded = run_machine(fold(beaver), max_steps=10**8, record=False)
    assert (folded.status, folded.num_steps) == (Status.HALTED, steps)
    assert folded.output is not None
    cells, first = unfold(folded.output, blank="_")
    places = {n + first: s for n, s in enumerate(cells) if s != "_"}
    assert places == nonblank(run)[0]


def test_folding_random_machines() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        machine = random_machine(rng, RandomMachineConfig(max_states=4))
        word = random_word(rng, machine)
        run = run_machine(machine, word, max_steps=60, left_edge="two-way")
        folded = run_machine(fold(machine), word, max_steps=60)
        assert (folded.status, folded.num_steps) == (run.status, run.num_steps)
        names = folded.machine.tape_alphabet
        for tape, expected in zip(folded.tapes.tolist(), nonblank(run), strict=True):
            cells, first = unfold([names[s] for s in tape], blank="_")
            assert {n + first: s for n, s in enumerate(cells) if s != "_"} == expected


@pytest.mark.parametrize("field", ["initial_state", "halting_state", "stuck_state"])
def test_ambiguous_states_of_folded_machines_are_refused(field: str) -> None:
    """State q in the upper track is q+ on the folded machine."""
    names = {"initial_state": "start", "halting_state": "halt", "stuck_state": "stuck"}
    names[field] = "q+"
    start, halt, stuck = names.values()
    machine = TuringMachine(
        states=(start, halt, stuck, "q"),
        input_alphabet=("a",),
        tape_alphabet=("_", "a"),
        blank="_",
        initial_state=start,
        halting_state=halt,
        stuck_state=stuck,
        rules=(Rule(start, ("_",), "q", ("a",), ("R",)), Rule("q", ("_",), halt, ("a",), ("S",))),
    )
    with pytest.raises(MachineError, match=r"^states: 'q\+' is reserved for the folded machine"):
        fold(machine)


def test_ambiguous_symbols_of_folded_machines_are_refused() -> None:
    rules = (Rule("q", ("_",), "halt", ("a",), ("S",)),)
    machine = TuringMachine(
        states=("q", "halt"),
        input_alphabet=("a",),
        tape_alphabet=("_", "a", "_/a"),
        blank="_",
        initial_state="q",
        halting_state="halt",
        rules=rules,
    )
    with pytest.raises(MachineError, match=r"'_/a' of the folded machine is ambiguous"):
        fold(machine)


def test_display() -> None:
    lines = list(run_lines(run_machine(examples.binary_increment(), "11")))
    assert lines[1] == "1  right    b [1] _ "
    assert lines[-1] == "halted after 7 steps in 3 cells, output 1 0 0"
    lines = list(run_lines(run_machine(examples.binary_addition(), "1+1"), max_lines=2))
    assert len(lines) == 4
    assert lines[2].endswith(" more")
