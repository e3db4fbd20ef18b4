"""Tests of `sudocot compile list`: table, example file and schema."""

from __future__ import annotations

import json

import pytest
import yaml

from compile_tm.commands.list_ import Config, main
from compile_tm.machines.examples import EXAMPLES, example
from compile_tm.machines.files import machine_from_data


def test_list_names_all_examples_and_shows_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Config()) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXAMPLES)
    text = shown.partition("prints the JSON Schema:\n")[2]
    assert machine_from_data(yaml.safe_load(text)) == example("unary-increment")


def test_schema_names_the_fields_that_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Config(schema=True)) == 0
    turing, dfa = json.loads(capsys.readouterr().out)["oneOf"]
    assert "tape_alphabet" in turing["required"]
    assert "num_tapes" not in turing["required"]
    assert dfa["properties"]["kind"] == {"const": "dfa"}
