"""Machine files in JSON or YAML.

    kind: turing
    states, input_alphabet, tape_alphabet, blank, initial_state, halting_state
    num_tapes, stuck_state, name      optional
    transitions                       [state, [read], next state, [written], [moves]], ...

    kind: dfa
    states, alphabet, initial_state, accepting
    name                              optional
    transitions                       [state, symbol, next state], ...

Without `kind`, a file with `accepting` is an automaton.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import Rule, TuringMachine
from data.runtime.documents import load_json, load_yaml

MAX_MACHINE_BYTES = 1 << 26
"""Maximum size of a machine file in bytes."""
_TURING_FIELDS = {
    "num_tapes": int,
    "states": list,
    "input_alphabet": list,
    "tape_alphabet": list,
    "blank": str,
    "initial_state": str,
    "halting_state": str,
    "stuck_state": (str, type(None)),
    "name": str,
    "transitions": list,
}
_DFA_FIELDS = {
    "states": list,
    "alphabet": list,
    "initial_state": str,
    "accepting": list,
    "name": str,
    "transitions": list,
}
_OPTIONAL = {"stuck_state", "name", "num_tapes"}
_TURING_ITEMS = 5
"""Items of a transition."""
_DFA_ITEMS = 3


def machine_schema() -> dict[str, Any]:
    """Return the JSON Schema of a machine file."""
    text = {"type": "string"}
    texts = {"type": "array", "items": text}
    either = {"anyOf": [text, texts]}
    kinds: dict[Any, dict[str, Any]] = {
        str: text,
        list: texts,
        int: {"type": "integer"},
        (str, type(None)): {"type": ["string", "null"]},
    }
    turing_rule = {"prefixItems": [text, either, text, either, either]}
    forms = []
    for kind, fields, rule, size in (
        ("turing", _TURING_FIELDS, turing_rule, _TURING_ITEMS),
        ("dfa", _DFA_FIELDS, {"items": text}, _DFA_ITEMS),
    ):
        properties = {name: kinds[field] for name, field in fields.items()}
        transition = {"type": "array", "minItems": size, "maxItems": size, **rule}
        properties["transitions"] = {"type": "array", "items": transition}
        forms.append(
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, **properties},
                "required": sorted(fields.keys() - _OPTIONAL),
                "additionalProperties": False,
            }
        )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "oneOf": forms}


def machine_from_data(data: Mapping[str, Any]) -> TuringMachine | Dfa:
    """Make a machine of plain lists and strings.

    Raises:
        ValueError: a field is missing, unknown or of the wrong type, or the machine is invalid.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"machine: got {type(data).__name__}, allowed is a mapping of fields")
    if not all(isinstance(key, str) for key in data):
        raise ValueError("fields: allowed are names; quote numbers, yes and no")
    kind = data.get("kind", "dfa" if "accepting" in data else "turing")
    if kind not in ("turing", "dfa"):
        raise ValueError(f"kind: got {kind!r}, allowed are turing and dfa")
    fields = _DFA_FIELDS if kind == "dfa" else _TURING_FIELDS
    values = {key: value for key, value in data.items() if key != "kind"}
    for key in sorted(values.keys() - fields.keys()):
        raise ValueError(f"{key}: unknown field of a {kind} machine")
    for key in sorted(fields.keys() - values.keys() - _OPTIONAL):
        raise ValueError(f"{key}: missing from a {kind} machine")
    for key, value in values.items():
        is_bool = isinstance(value, bool)  # a subclass of int
        if is_bool or not isinstance(value, fields[key]):  # type: ignore[arg-type]
            raise ValueError(f"{key}: got {_shown(value)} of the wrong type")
        if isinstance(value, list) and key != "transitions":
            _check_strings(key, value)
    transitions = [_transition(row, n, kind) for n, row in enumerate(values.pop("transitions"))]
    plain: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in values.items()
    }
    if kind == "dfa":
        plain["accepting"] = frozenset(plain["accepting"])
        return Dfa(transitions=tuple(transitions), **plain)
    return TuringMachine(rules=tuple(Rule(*row) for row in transitions), **plain)


def machine_to_data(machine: TuringMachine | Dfa) -> dict[str, Any]:
    """Return a machine as plain lists and strings, the inverse of `machine_from_data`."""
    if isinstance(machine, Dfa):
        return {
            "kind": "dfa",
            "name": machine.name,
            "states": list(machine.states),
            "alphabet": list(machine.alphabet),
            "initial_state": machine.initial_state,
            "accepting": [state for state in machine.states if state in machine.accepting],
            "transitions": [list(row) for row in machine.transitions],
        }
    return {
        "kind": "turing",
        "name": machine.name,
        "num_tapes": machine.num_tapes,
        "states": list(machine.states),
        "input_alphabet": list(machine.input_alphabet),
        "tape_alphabet": list(machine.tape_alphabet),
        "blank": machine.blank,
        "initial_state": machine.initial_state,
        "halting_state": machine.halting_state,
        "stuck_state": machine.stuck_state,
        "transitions": [
            [item if isinstance(item, str) else list(item) for item in rule]
            for rule in machine.rules
        ],
    }


def read_machine(path: str | Path) -> TuringMachine | Dfa:
    """Read a `.json`, `.yaml` or `.yml` file.

    Raises:
        ValueError: another suffix, or an invalid machine; the message names the file.
        OSError: the file cannot be read.
    """
    path = Path(path)
    if path.suffix == ".json":
        data = load_json(path, max_bytes=MAX_MACHINE_BYTES)
    elif path.suffix in (".yaml", ".yml"):
        data = load_yaml(path, max_bytes=MAX_MACHINE_BYTES)
    else:
        raise ValueError(f"{path}: allowed are .json, .yaml and .yml")
    try:
        return machine_from_data(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_strings(where: str, values: list[Any]) -> None:
    for place, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"{where}: item {place} is {_shown(value)}, allowed are strings; quote numbers"
            )


def _shown(value: object) -> str:
    """Abbreviated representation of a value for messages."""
    return reprlib.repr(value)


def _transition(row: Any, number: int, kind: str) -> tuple[Any, ...]:
    """Convert a transition to tuples.

    For one tape, a single symbol may be given in place of a list of one.
    """
    size = _DFA_ITEMS if kind == "dfa" else _TURING_ITEMS
    if not isinstance(row, list) or len(row) != size:
        raise ValueError(
            f"transition {number}: got {_shown(row)}, allowed is a list of {size} items"
        )
    for place, item in enumerate(row):
        if isinstance(item, list):
            _check_strings(f"transition {number}: item {place}", item)
        is_list = kind == "turing" and place in (1, 3, 4)
        if not isinstance(item, (str, list) if is_list else str):
            raise ValueError(
                f"transition {number}: item {place} is {_shown(item)}, of the wrong type"
            )
    if kind == "dfa":
        return tuple(row)
    return tuple(
        (tuple(item) if isinstance(item, list) else (item,)) if place in (1, 3, 4) else item
        for place, item in enumerate(row)
    )
