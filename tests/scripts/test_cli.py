"""The command line: quick help, exit codes, one-line errors, unknown commands."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from scripts.cli import main as cli
from scripts.cli.main import COMMANDS, CommandEntry, main
from tests.scripts import fake_command

HEAVY = ("numpy", "numba", "pyarrow", "torch", "transformers", "datasets", "tyro", "rich")
GROUPS = sorted({words[0] for words in COMMANDS if len(words) > 1})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds `sudocot fake` and `sudocot group fake`, and undoes what `main` does to logging."""
    entry = CommandEntry("tests.scripts.fake_command", "ends in a chosen way", "all rows are kept")
    monkeypatch.setitem(COMMANDS, ("fake",), entry)
    monkeypatch.setitem(COMMANDS, ("group", "fake"), entry)
    root = logging.getLogger()
    handlers, levels = (
        root.handlers[:],
        {name: logging.getLogger(name).level for name in ("", *cli.PACKAGES)},
    )
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], *([group, "--help"] for group in GROUPS)]
)
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    code = (
        "import sys; from scripts.cli.main import main; code = main(sys.argv[2:]); "
        "print('imported', *set(sys.argv[1].split()) & set(sys.modules)); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *argv],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.endswith("\nimported\n"), result.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command_keeps_the_contract(words: tuple[str, ...]) -> None:
    module = importlib.import_module(COMMANDS[words].module)
    assert module.Config.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(module.Config))
    assert hasattr(module.Config, "__slots__")
    assert f"sudocot {' '.join(words)} " in module.Config.__doc__, "an example belongs in the help"
    assert callable(module.main)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_a_command_imports_no_torch(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from scripts.cli.main import main; code = main(sys.argv[1:]); "
        "assert not {'torch', 'transformers'} & set(sys.modules); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"usage: sudocot {' '.join(words)} ")
    assert cli.CONFIG_FILE_HELP[:30] in result.stdout


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for words, entry in COMMANDS.items():
        assert f"  {' '.join(words)} " in listed
        assert entry.summary in listed


@pytest.mark.usefixtures("fake")
def test_group_help_lists_its_own_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "-h"]) == 0
    assert main(["group"]) == 2
    captured = capsys.readouterr()
    assert captured.out == captured.err
    assert "usage: sudocot group COMMAND" in captured.out
    assert "group fake  ends in a chosen way" in captured.out
    assert "solve" not in captured.out.split("commands:")[1]


def test_no_words_show_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: sudocot COMMAND")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("argv", "unknown", "nearest"),
    [
        (["slove", "x"], "slove", "solve"),
        (["group", "fakes"], "group fakes", "group fake"),
        (["group", "--fast"], "group --fast", "group fake"),
    ],
)
def test_unknown_command_names_the_nearest(
    argv: list[str], unknown: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    message = capsys.readouterr().err
    assert message.startswith(
        f"sudocot: error: unknown command {unknown!r}: did you mean {nearest!r}? "
    )
    assert message.count("\n") == 1


def test_unknown_command_without_a_near_one_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    message = capsys.readouterr().err
    assert "did you mean" not in message
    assert "commands are " in message


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("done", 0, ""),
        ("failed", 1, ""),
        ("value", 2, "sudocot: error: puzzles.txt:3:7: got 'q', allowed are digits\n"),
        ("missing", 2, "sudocot: error: gone.txt: No such file or directory\n"),
        ("disk", 2, "sudocot: error: [Errno 28] No space left on device\n"),
        ("stop", 130, "sudocot: interrupted: all rows are kept\n"),
        ("kept", 130, "sudocot: interrupted: 3 shards are kept\n"),
    ],
)
def test_ending_becomes_exit_code_and_one_line(
    ending: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fake", "--ending", ending]) == code
    assert capsys.readouterr().err == message


@pytest.mark.usefixtures("fake")
def test_bugs_and_debugging_show_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        main(["fake", "--ending", "bug"])
    monkeypatch.setenv("SUDOCOT_DEBUG", "1")
    with pytest.raises(ValueError, match="puzzles"):
        main(["fake", "--ending", "value"])


@pytest.mark.usefixtures("fake")
def test_presets_are_defaults_that_options_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def base_config(options: Sequence[str]) -> fake_command.Config:
        return fake_command.Config(sizes=(7,) if "--no-loud" in options else (8,), ending="failed")

    monkeypatch.setattr(fake_command, "base_config", base_config, raising=False)
    assert main(["fake", "--no-loud", "--ending", "done"]) == 0
    shown = capsys.readouterr().out
    assert "sizes=(7,)" in shown
    assert "loud=False" in shown


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--endings", "done"], "--ending"),
        (["--ending", "never"], "never"),
        (["--sizes", "13"], "sizes: got 13, allowed is anything else"),
    ],
)
def test_wrong_options_exit_with_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", "fake", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("fake")
def test_logging_is_quiet_on_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    main(["fake"])
    assert logging.getLogger("data.anything").isEnabledFor(logging.INFO)
    assert not logging.getLogger("elsewhere").isEnabledFor(logging.INFO)
    monkeypatch.setenv("RANK", "1")
    main(["fake"])
    assert not logging.getLogger("data.anything").isEnabledFor(logging.INFO)
