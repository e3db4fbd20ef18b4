"""Tests of machine specifications: validation, files, words, automata, expressions."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_tm.machines.dfa import Dfa, minimal
from compile_tm.machines.examples import EXAMPLES, busy_beaver, example, multiples, parity
from compile_tm.machines.files import (
    machine_from_data,
    machine_schema,
    machine_to_data,
    read_machine,
)
from compile_tm.machines.folding import fold
from compile_tm.machines.problems import MachineError, split_word
from compile_tm.machines.random_machines import (
    RandomMachineConfig,
    random_machine,
    random_word,
)
from compile_tm.machines.regex import regex_dfa
from compile_tm.machines.turing import Rule, TuringMachine, make_rules
from tests.compile_tm.machine_cases import random_dfa, write_machine


def small_machine(**changes: object) -> TuringMachine:
    fields: dict[str, object] = {
        "states": ("q", "halt"),
        "input_alphabet": ("a",),
        "tape_alphabet": ("_", "a"),
        "blank": "_",
        "initial_state": "q",
        "halting_state": "halt",
        "rules": (Rule("q", ("_",), "halt", ("a",), ("S",)),),
    }
    return TuringMachine(**(fields | changes))  # type: ignore[arg-type]


def test_every_problem_of_a_machine_is_listed() -> None:
    rules = (
        Rule("q", ("a", "a"), "q", ("a",), ("R",)),
        Rule("q", ("_",), "nowhere", ("z",), ("X",)),  # type: ignore[arg-type]
        Rule("q", ("_",), "q", ("a",), ("S",)),
        Rule("halt", ("a",), "q", ("a",), ("S",)),
    )
    with pytest.raises(MachineError) as caught:
        small_machine(
            rules=rules,
            states=("q", "halt", "q", ""),
            tape_alphabet=("a", "b c"),
            input_alphabet=("a", "d"),
            initial_state="halt",
            num_tapes=1,
        )
    problems = caught.value.problems
    for part in (
        "states: got ''",
        "'q' is listed 2 times",
        "tape_alphabet: got 'b c'",
        "input_alphabet: 'd' is not in tape_alphabet",
        "blank: '_' is not in tape_alphabet",
        "must differ",
        "rule 0 (q a,a -> q a R): read has 2 items for 1 tapes",
        "rule 1 (q _ -> nowhere z X): 'nowhere' is not in states",
        "rule 1 (q _ -> nowhere z X): symbol 'z' is not in tape_alphabet",
        "rule 1 (q _ -> nowhere z X): move 'X' is none of L, S, R",
        "rule 2 (q _ -> q a S): rule 1 is for the same state and symbols",
        "rule 3 (halt a -> q a S): state 'halt' ends a run and has no rules",
    ):
        assert any(part in problem for problem in problems), part


def test_every_problem_of_an_automaton_is_listed() -> None:
    with pytest.raises(MachineError) as caught:
        Dfa(
            states=("p",),
            alphabet=("a", "b"),
            initial_state="x",
            accepting=frozenset("y"),
            transitions=(("p", "a", "p"), ("p", "a", "z"), ("p", "c", "p")),
        )
    problems = caught.value.problems
    for part in (
        "'x' is not",
        "'y' is not",
        "'z' is not",
        "'c' is not",
        "transition 0 is for",
        "none for state 'p' and symbol 'b'",
    ):
        assert any(part in problem for problem in problems), part
    assert "and 1 more" in str(caught.value)  # the message has a limit


def test_state_and_symbol_may_share_a_name_and_symbols_have_any_length() -> None:
    machine = small_machine(
        states=("10", "halt"),
        initial_state="10",
        input_alphabet=("10", "inp"),
        tape_alphabet=("_", "10", "inp"),
        rules=(),
    )
    assert machine.word("10 inp 10") == ("10", "inp", "10")
    assert machine.word(["inp"]) == ("inp",)
    with pytest.raises(ValueError, match="'1' at index 0 is not in the input alphabet"):
        machine.word("1 0")


def test_rows_with_wildcards() -> None:
    rows = [("q", "a*", "q", "==", "RS"), ("q", "**", "halt", "=a", "SL")]
    rules = make_rules(rows, tape_alphabet="_a", num_tapes=2)
    assert len(rules) == 4
    assert str(rules[0]) == "(q a,_ -> q a,_ R,S)"
    assert Rule("q", ("_", "_"), "halt", ("_", "a"), ("S", "L")) in rules
    with pytest.raises(ValueError, match="has 1 parts for 2 tapes"):
        make_rules([("q", "a", "q", "==", "RS")], tape_alphabet="_a", num_tapes=2)


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_files_round_trip(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"machine{suffix}"
    write_machine(example(name), path)
    assert read_machine(path) == example(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blank": None}, "blank: got None"),
        ({"color": "red"}, "color: unknown field"),
        ({"transitions": [["q"]]}, "transition 0: got"),
        ({"transitions": [["q", 1, "q", ["a"], ["R"]]]}, "transition 0: item 1 is 1"),
        ({"kind": "pda"}, "kind: got 'pda'"),
        ({"states": ["q"]}, "halting_state: 'halt' is not in states"),
    ],
)
def test_bad_files_are_refused_by_name(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(machine_to_data(small_machine()) | change))
    with pytest.raises(ValueError, match=message) as caught:
        read_machine(path)
    assert str(path) in str(caught.value)


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Validate by the keywords of JSON Schema that `machine_schema` uses."""
    types = {"string": str, "integer": int, "array": list, "object": dict, "null": type(None)}
    names = schema.get("type", [])
    allowed = tuple(types[name] for name in ([names] if isinstance(names, str) else names))
    if allowed and not isinstance(value, allowed):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(conforms(value, form) for form in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(conforms(value, form) for form in schema["oneOf"]) != 1:
        return False
    if isinstance(value, list):
        forms = [*schema.get("prefixItems", ()), *[schema.get("items", {})] * len(value)]
        size = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return size and all(map(conforms, value, forms))
    if isinstance(value, dict) and "properties" in schema:
        return value.keys() >= set(schema["required"]) and all(
            name in schema["properties"] and conforms(item, schema["properties"][name])
            for name, item in value.items()
        )
    return True


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    schema = machine_schema()
    machines = [machine_to_data(example(name)) for name in EXAMPLES]
    short = machine_to_data(small_machine()) | {"transitions": [["q", "_", "halt", "a", "S"]]}
    stuck = machine_to_data(small_machine(states=("q", "halt", "stuck"), stuck_state="stuck"))
    for data in [*machines, short, stuck]:
        machine_from_data(data)
        assert conforms(data, schema)
    for data in machines:
        for changes in (
            {"color": "red"},
            {"name": 1},
            {"transitions": [data["transitions"][0][:-1]]},
            {"transitions": [[*data["transitions"][0], "x"]]},
        ):
            with pytest.raises(ValueError):
                machine_from_data(data | changes)
            assert not conforms(data | changes, schema)


def test_other_bad_files(tmp_path: Path) -> None:
    for name, text, message in (
        ("a.json", "[]", "mapping"),
        ("a.json", "{", "a.json"),
        ("a.txt", "", "allowed are .json"),
        ("a.yaml", "a: [", "a.yaml"),
        ("a.yaml", "1: a\nfoo: b\n", "fields: allowed are names; quote numbers, yes and no"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            read_machine(tmp_path / name)
    data = machine_to_data(small_machine())
    del data["blank"]
    with pytest.raises(ValueError, match="blank: missing"):
        machine_from_data(data)


def test_one_tape_files_may_write_symbols_bare() -> None:
    data = machine_to_data(small_machine()) | {"transitions": [["q", "_", "halt", "a", "S"]]}
    assert machine_from_data(data) == small_machine()


def test_parity_and_multiples() -> None:
    for number in range(200):
        word = f"{number:b}"
        assert parity().accepts(word) == (word.count("1") % 2 == 0)
        assert multiples(7).accepts(word) == (number % 7 == 0)
    assert multiples(3, base=10).accepts("123456")


@pytest.mark.parametrize("expression", ["(a|b)*abb", "a*b+c?", "", "(ab)*|c", "a.b", "(a|)(b|c)*"])
def test_expressions_match_as_in_python(expression: str) -> None:
    dfa = regex_dfa(expression, alphabet="abc")
    for length in range(6):
        for word in product("abc", repeat=length):
            assert dfa.accepts(word) == bool(re.fullmatch(expression, "".join(word))), word


@pytest.mark.parametrize(
    ("expression", "equivalent"),
    [
        ("a" + 60 * "+", "a+"),
        (50 * "(" + "ab" + 50 * ")+", "(ab)+"),
        ("(a|b+)*" + 40 * "+", "(a|b)*"),
        ("(a+b)++", "(a+b)+"),
    ],
)
def test_repeated_repetitions_are_one(expression: str, equivalent: str) -> None:
    dfa = regex_dfa(expression, alphabet="ab")
    for length in range(7):
        for word in product("ab", repeat=length):
            assert dfa.accepts(word) == bool(re.fullmatch(equivalent, "".join(word))), word


def test_escaped_and_malformed_expressions() -> None:
    assert regex_dfa(r"\*+", alphabet="*").accepts("**")
    for expression, message in (
        ("a)", "column 2: unmatched"),
        ("(a", "column 3: missing"),
        ("*", "column 1: nothing to repeat"),
        ("az", "column 2: 'z' is not in the alphabet"),
        ("a\\", "column 3: nothing after"),
    ):
        with pytest.raises(ValueError, match=message):
            regex_dfa(expression, alphabet="a")
    with pytest.raises(ValueError, match="one character"):
        regex_dfa("a", alphabet=("ab",))


def test_minimal_automata_accept_the_same_and_cannot_shrink() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        dfa = random_dfa(rng)
        small = minimal(dfa)
        assert minimal(small).states == small.states
        for _ in range(30):
            word = random_word(rng, dfa, max_length=12)
            assert small.accepts(word) == dfa.accepts(word)


def test_random_machines_are_reproducible_and_complete() -> None:
    first, again = (random_machine(np.random.default_rng(5)) for _ in range(2))
    assert first == again
    assert (first.table.next_state[: -(len(first.tape_alphabet) ** first.num_tapes)] >= 0).all()
    with pytest.raises(ValueError, match="max_states: got 1, allowed is 2 to 1000"):
        RandomMachineConfig(max_states=1)
    with pytest.raises(ValueError, match="max_inputs: got 12, allowed is 1 to 8"):
        RandomMachineConfig(max_inputs=12)


def test_unknown_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="example: got 'x'"):
        example("x")
    with pytest.raises(ValueError, match="num_states: got 6"):
        busy_beaver(6)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(a|b)*a" + 14 * "(a|b)", "its automaton has more than 4,096 states"),
        (300 * "(" + "a" + 300 * ")", "got 601 characters, allowed are 400"),
        (60 * "(" + "a" + 60 * ")", "column 52: more than 50 brackets in each other"),
        (401 * "a", "got 401 characters, allowed are 400"),
    ],
)
def test_expressions_beyond_limits_are_refused(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regex_dfa(expression, alphabet="ab")
    assert len(regex_dfa(400 * "a", alphabet="a").states) == 402
    assert regex_dfa(50 * "(" + "a" + 50 * ")", alphabet="a").accepts("a")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alphabet: [0, 1]", r"alphabet: item 0 is 0, allowed are strings; quote numbers"),
        ("accepting: [[a]]", r"accepting: item 0 is \['a'\], allowed are strings"),
        ("states: {a: 1}", r"states: got \{'a': 1\} of the wrong type"),
        ("transitions: [[a, 0, a]]", r"transition 0: item 1 is 0, of the wrong type"),
        ("name: [a]", r"name: got \['a'\] of the wrong type"),
    ],
)
def test_values_of_a_wrong_type_are_named(tmp_path: Path, line: str, message: str) -> None:
    fields = {
        "alphabet": "['0']",
        "accepting": "[a]",
        "states": "[a]",
        "transitions": "[[a, '0', a]]",
        "name": "m",
        "initial_state": "a",
    }
    fields[line.split(":")[0]] = line.split(": ", 1)[1]
    path = tmp_path / "m.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    with pytest.raises(ValueError, match=message) as caught:
        read_machine(path)
    assert str(caught.value).startswith(str(path))


def test_yaml_aliases_do_not_blow_up_messages(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path = tmp_path / "m.yaml"
    path.write_text("accepting: &z\n  - z\n" + "\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="aliases are not allowed") as caught:
        read_machine(path)
    assert len(str(caught.value)) < 500


def test_a_folded_alphabet_can_be_too_large() -> None:
    alphabet = [chr(0x4E00 + k) for k in range(130)]
    machine = TuringMachine(
        name="wide",
        num_tapes=1,
        states=("a", "h"),
        input_alphabet=tuple(alphabet),
        tape_alphabet=("_", *alphabet),
        blank="_",
        initial_state="a",
        halting_state="h",
        stuck_state=None,
        rules=tuple(Rule("a", (s,), "h", (s,), ("R",)) for s in ("_", *alphabet)),
    )
    with pytest.raises(
        MachineError, match="tape_alphabet: got 34,453 symbols, allowed are at most"
    ):
        _ = fold(machine).table


def test_words_of_an_alphabet_with_long_symbols() -> None:
    folded = ("1", "1/1", "_/1")
    assert split_word("11", alphabet=folded) == ("1", "1")
    assert split_word("1/1", alphabet=folded) == ("1/1",)
    assert split_word("1 1/1", alphabet=folded) == ("1", "1/1")
    assert split_word("ab", alphabet=("a", "b", "ab")) == ("ab",)
    with pytest.raises(ValueError, match="symbol 'abc' at index 0"):
        split_word("abc", alphabet=("ab", "c"))
