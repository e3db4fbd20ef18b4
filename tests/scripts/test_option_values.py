"""Odd values of every option end in a config within its ranges or in one message, never elsewhere.

The options come from the snapshot `cli_options.txt`, so a new one is covered as soon as it is
frozen there. Commands are parsed and checked in full; what they would do is left out.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import pytest

from data.runtime.ranges import check_ranges, hints_of
from scripts.cli.commands import COMMANDS
from scripts.cli.main import main, parse
from scripts.cli.options import format_metavar
from tests.scripts.test_cli_options import SNAPSHOT

TEXTS = ("", "[/x]", "$x^$", "a/b", "0", "nan", "\x1b[31m", "x" * 200, "\u6570", "\udcff", "..")
REQUIRED: dict[tuple[str, ...], list[str]] = {
    ("compile", "check"): ["folder"],
    ("compile", "dfa"): ["parity", "--bits", "4", "--out", "o"],
    ("compile", "estimate"): ["parity", "--bits", "4"],
    ("compile", "probe"): ["folder", "--out", "o.npz"],
    ("compile", "report"): ["--out", "o"],
    ("compile", "run"): ["parity", "1"],
    ("compile", "show"): ["parity", "1", "--position", "0"],
    ("compile", "tm"): ["sorting", "--bits", "8", "--out", "o"],
    ("data", "build"): ["p.csv", "--out", "o"],
    ("data", "check-splits"): ["a", "b"],
    ("data", "export"): ["d", "--out", "o"],
    ("data", "generate"): ["5", "--out", "p.csv"],
    ("data", "lengths"): ["p.csv", "--out", "o"],
    ("data", "merge"): ["o"],
    ("data", "stats"): ["d"],
    ("eval", "card"): ["e", "--model", "m"],
    ("eval", "certify"): ["e", "--model", "m"],
    ("eval", "import"): ["f", "--name", "n", "--out", "e"],
    ("eval", "merge"): ["e"],
    ("eval", "replay"): ["--model", "m", "--puzzle", "p"],
    ("eval", "run"): ["--model", "m", "--data", "p.csv", "--out", "e"],
    ("eval", "score"): ["e"],
    ("eval", "wandb"): ["e"],
    ("launch",): ["--name", "n"],
    ("paper", "plan"): ["study"],
    ("paper", "report"): ["study"],
    ("paper", "run"): ["study"],
    ("publish", "dataset"): ["d", "--repo", "a/b"],
    ("publish", "model"): ["m", "--repo", "a/b"],
    ("train", "export"): ["r", "m"],
    ("report",): ["e", "--out", "o"],
    ("solve",): ["p"],
    ("trace",): ["p", "--out", "o.html"],
    ("train", "import"): ["s", "t", "--mode", "cot"],
    ("train", "plot"): ["r", "--out", "o.svg"],
    ("train", "run"): ["--data", "d", "--out", "o"],
    ("train", "wandb-sync"): ["r"],
}
BEHIND: dict[tuple[str, ...], list[str]] = {("launch",): ["--", "eval", "score", "e"]}


def options() -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Command, name and form of the value of every option that takes one."""
    words: tuple[str, ...] = ()
    for line in SNAPSHOT.read_text().splitlines():
        if line.startswith("usage: "):
            shown = line.split()
            words = next(
                tuple(shown[2 : 2 + n]) for n in (2, 1) if tuple(shown[2 : 2 + n]) in COMMANDS
            )
        elif match := re.fullmatch(r"    (--[a-z.-]+) (\S.*)", line):
            yield words, match[1], match[2]


OPTIONS = [option for option in options() if not re.match(r"[a-z]", option[2])]


def test_every_number_states_its_range() -> None:
    """`INT[1..64]` in the help, and no bare `INT`."""
    for words, name, form in OPTIONS:
        bare = re.findall(r"\b(?:INT|FLOAT)(?![\[(])", form)
        assert not bare, (words, name, form)


class Stub(ModuleType):
    """Stands for the module of a command: the same options, and nothing done with them."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self.Config = module.Config
        if hasattr(module, "base_config"):
            self.base_config = module.base_config
        self.configs: list[Any] = []

    def main(self, config: Any) -> int:
        self.configs.append(config)
        return 0


@pytest.fixture
def stub(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Stub:
    load = importlib.import_module
    real = load(COMMANDS[words].module)
    stub = Stub(real)
    monkeypatch.setattr(
        "scripts.cli.main.importlib.import_module",
        lambda name, package=None: stub if name == real.__name__ else load(name, package),
    )
    return stub


every_command = pytest.mark.parametrize(
    "words", sorted({words for words, _, _ in OPTIONS}), ids=" ".join
)


@every_command
@pytest.mark.parametrize(
    "value", ["", "nan", "-1", "[/x]", "9" * 400, "9" * 5000], ids=lambda v: f"{len(v)}-{v[:4]}"
)
def test_a_command_line_of_odd_values_ends_in_a_message(
    words: tuple[str, ...], value: str, stub: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"{name}={value}" for command, name, _ in OPTIONS if command == words]
    code = main([*words, *REQUIRED.get(words, []), *given, *BEHIND.get(words, [])])
    shown = capsys.readouterr().err
    assert code == 2 or (code == 0 and stub.configs)
    assert "Traceback" not in shown


@every_command
def test_every_odd_value_is_checked(words: tuple[str, ...]) -> None:
    """One field at a time, as Python sets it: quicker than a command line for each."""
    _, config = parse(words, [*REQUIRED.get(words, []), *BEHIND.get(words, [])])
    for path, hint in fields_of(config):
        for value in odd_values(hint):
            is_outside = value in OUTSIDE and is_number(hint)
            try:
                check_ranges(with_field(config, path, value))
            except (ValueError, OSError):
                continue
            assert not is_outside or 0 < value <= max_of(hint), (path, value)


OUTSIDE = (-1, 10**30, -math.inf, math.inf)


def fields_of(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, hint in hints_of(type(config)).items():
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, (*path, name))
        else:
            yield (*path, name), hint


def with_field(config: Any, path: tuple[str, ...], value: Any) -> Any:
    first, *rest = path
    inner = with_field(getattr(config, first), tuple(rest), value) if rest else value
    return dataclasses.replace(config, **{first: inner})


def odd_values(hint: Any) -> Iterator[Any]:
    """Values of a field's own kind."""
    shown = format_metavar(hint)
    kinds = {get_origin(arg) or arg for arg in (hint, *get_args(hint))}
    if "INT" in shown or "FLOAT" in shown:
        numbers: tuple[float, ...] = (0, -1, 1, 2**31, 2**63, 10**18, 10**30)
        if "FLOAT" in shown:
            numbers += (0.5, -math.inf, math.inf, math.nan, 1e300)
        for number in numbers:
            if " " not in shown:
                yield number
            else:
                yield (number,) if "..." in shown else (number, number)
    elif str in kinds:
        yield from TEXTS
    elif Path in kinds:
        yield from map(Path, TEXTS)


def is_number(hint: Any) -> bool:
    return format_metavar(hint).startswith(("INT", "FLOAT"))


def max_of(hint: Any) -> float:
    return math.inf if "inf" in format_metavar(hint) else 0.0
