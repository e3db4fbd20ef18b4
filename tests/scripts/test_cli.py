"""Tests of the command line: fast help, exit codes, one-line errors, unknown commands."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.cli import errors
from scripts.cli.commands import COMMANDS, GROUPS, CommandEntry
from scripts.cli.help import CONFIG_FILE_HELP
from scripts.cli.main import CRASHED, main, parse
from scripts.cli.options import Option, list_options
from sudocot_cli import PACKAGES
from tests.scripts import fake_command

HEAVY = ("numpy", "numba", "pyarrow", "torch", "transformers", "datasets", "tyro", "rich")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds `sudocot fake` and `sudocot group fake`, and undoes what `main` does to logging."""
    entry = CommandEntry("tests.scripts.fake_command", "ends in a chosen way", "all rows are kept")
    monkeypatch.setitem(COMMANDS, ("fake",), entry)
    monkeypatch.setitem(COMMANDS, ("group", "fake"), entry)
    monkeypatch.setitem(GROUPS, "group", "fakes")
    root = logging.getLogger()
    handlers, levels = (
        root.handlers[:],
        {name: logging.getLogger(name).level for name in ("", *PACKAGES)},
    )
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(
    "argv",
    [["--help"], ["-V"], *([group, "--help"] for group in GROUPS if (group,) not in COMMANDS)],
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
    # The help shows the lines after this heading as examples.
    examples = module.Config.__doc__.partition("\n    Examples:\n")[2].splitlines()
    command = f"sudocot {' '.join(words)} "
    assert any(command in f"{line} " for line in examples), "an example belongs in the help"
    assert callable(module.main)


def test_help_of_no_command_imports_torch_or_numba() -> None:
    code = (
        "import sys; from scripts.cli.main import run; from scripts.cli.commands import COMMANDS\n"
        "for words in COMMANDS:\n"
        "    sys.argv = ['sudocot', *words, '--help']\n"
        "    try: run()\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "    heavy = {'torch', 'transformers', 'wandb', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, (words, heavy)\n"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)


def test_plan_of_an_experiment_imports_neither_torch_nor_numba() -> None:
    code = (
        "import sys; from scripts.cli.main import run\n"
        "sys.argv = ['sudocot', 'paper', 'plan', 'scot-depth', '--gpus', '8']\n"
        "try: run()\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'torch', 'transformers', 'wandb', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)


def test_first_screen_names_every_command_in_25_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 25
    assert max(map(len, shown.splitlines())) <= 80
    for words, entry in COMMANDS.items():
        assert words[-1] in shown
        assert entry.summary in shown or len(words) > 1 or words[0] in GROUPS
    assert {words[0] for words in COMMANDS if len(words) > 1} <= set(GROUPS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_of_a_command_is_short_and_plain(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["help", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: sudocot {' '.join(words)} ")
    assert CONFIG_FILE_HELP in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "None" not in shown.partition("options:")[2].replace("None ", "")
    options = _options_of(words)
    main_options = COMMANDS[words].main_options.split()
    assert len(main_options) <= 10
    assert len(main_options) > 0 or len(options) <= 12, "choose the ten that matter"
    assert set(main_options) <= {option.name for option in options}
    assert all(option.help for option in options)
    assert main([*words, "--help-all"]) == 0
    complete = capsys.readouterr().out
    assert all(f"--{option.name}" in complete or option.default is True for option in options)


def _options_of(words: tuple[str, ...]) -> list[Option]:
    config = importlib.import_module(COMMANDS[words].module).Config
    return [option for option in list_options(config) if not option.is_positional]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_has_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    # A group that is a command itself, as `launch`, completes as that command.
    assert all(words[-1] in script for words in COMMANDS if words[:-1] not in COMMANDS)
    assert "--segment-tokens" in script
    (spec,) = (line for line in script.splitlines() if line.startswith("COMPLETION_SPEC = "))
    assert "\\n" not in spec  # bash would offer the second line of a description as a word
    assert main(["completion", "fish"]) == 2


@pytest.mark.usefixtures("fake")
def test_group_help_lists_its_own_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "-h"]) == 0
    assert main(["group"]) == 2
    captured = capsys.readouterr()
    assert captured.out == captured.err
    assert "usage: sudocot group COMMAND" in captured.out
    assert "group fake  ends in a chosen way" in captured.out
    assert "solve puzzles" not in captured.out


def test_no_words_show_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: sudocot COMMAND")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("argv", "unknown", "nearest"),
    [
        (["slove", "x"], "slove", "solve"),
        (["fakes"], "fakes", "fake"),
        (["lengths"], "lengths", "data lengths"),
        (["group", "fakes"], "group fakes", "group fake"),
        (["launch", "stauts"], "launch stauts", "launch status"),
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
    assert "allowed are solve, " in message
    assert main(["data", "xyzzy"]) == 2
    assert "allowed are build, merge, " in capsys.readouterr().err


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
def test_internal_error_has_its_own_exit_code_and_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fake", "--ending", "bug"]) == CRASHED
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert "internal error: ZeroDivisionError: a bug" in message
    assert f"sudocot {importlib.metadata.version('sudocot')}, Python 3." in message
    monkeypatch.setenv("SUDOCOT_DEBUG", "1")
    with pytest.raises(ValueError, match="puzzles"):
        main(["fake", "--ending", "value"])


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("package", "extra"), [("torch", "eval"), ("wandb", "train")])
def test_missing_package_names_its_extra(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_config: fake_command.Config) -> int:
        raise ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.nn")

    monkeypatch.setattr(fake_command, "main", fail)
    monkeypatch.setitem(errors.EXTRAS, "fake", "eval")
    assert main(["fake"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"sudocot: error: fake needs {package}, which is not installed: pip ")
    assert message.endswith(f"install 'sudocot[{extra}]'\n")


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
        (["--endings", "done"], "--endings: no such option; did you mean --ending? "),
        (["--ending", "never"], "--ending: got never, allowed is done|failed|value|"),
        (["--nested.rate", "fast"], "--nested.rate: got fast, allowed is FLOAT"),
        (["--nested.rate=fast"], "--nested.rate: got fast, allowed is FLOAT"),
        (["--out"], "--out: got nothing, allowed is PATH"),
        (["--sizes", "13"], "sizes: got 13, allowed is anything else"),
        (["--sizes", "13"], "error: sizes: got 13"),
        (["stray"], "unexpected argument: stray"),
    ],
)
def test_wrong_options_exit_with_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", "fake", *options]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("sudocot: error: ")
    assert shown.count("\n") == 1
    assert message in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data generate 1e30 --out x.csv", "COUNT: got 1e30, allowed is INT["),
        ("data generate five --out x.csv", "COUNT: got five, allowed is INT["),
        ("data generate 5 --out .", "out: got '.', allowed is a path that ends in a name"),
        ("data build p.csv --out /", "out: got '/', allowed is a path that ends in a name"),
        ("trace 1... --out ''", "out: got '.', allowed is a path that ends in a name"),
        (f"data generate 5 --board {'k' * 100_000} --out x.csv", " characters)"),
    ],
)
def test_wrong_arguments_are_named(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(words)) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("sudocot: error: ")
    assert message in shown
    assert len(shown) < 5_000


@pytest.mark.usefixtures("fake")
def test_logging_is_quiet_on_other_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    main(["fake"])
    assert logging.getLogger("data.anything").isEnabledFor(logging.INFO)
    assert not logging.getLogger("elsewhere").isEnabledFor(logging.INFO)
    monkeypatch.setenv("RANK", "1")
    main(["fake"])
    assert not logging.getLogger("data.anything").isEnabledFor(logging.INFO)


def test_backend_of_a_notebook_does_not_break_plots(tmp_path: Path) -> None:
    """Jupyter sets MPLBACKEND for child processes to a module that may not be installed."""
    code = (
        "import os, sys; from scripts.cli.main import run; sys.argv = ['sudocot', '--version']\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig(sys.stdin.read())"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        input=str(tmp_path / "plot.svg"),
        env={**os.environ, "MPLBACKEND": "module://missing_backend"},
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    assert (tmp_path / "plot.svg").stat().st_size


def test_repeated_options_with_several_values_keep_all_of_them() -> None:
    """The parser keeps the last one only, so held-out puzzles would be trained on."""
    words = ["a.csv", "--exclude", "t1", "--out", "o", "--exclude=t2", "--exclude", "t3", "t4"]
    _, config = parse(("data", "build"), words)
    assert config.exclude == ("t1", "t2", "t3", "t4")
    assert config.sources == ("a.csv",)
    with pytest.raises(ValueError, match="--exclude: given 4 times, allowed is once"):
        parse(("data", "build"), [*words, "--exclude=-x"])


def test_sbatch_options_are_repeated(tmp_path: Path) -> None:
    sbatch = ["--sbatch=--account=me", "--sbatch=--partition=cpu", "--gpu-sbatch=--partition=gpu"]
    words = ["--gpus", "1", "--dry-run", *sbatch, "--", "train", "run", "--data", "d", "--out", "o"]
    _, config = parse(("launch",), words)
    assert config.resources.sbatch == ("--account=me", "--partition=cpu")
    assert config.resources.gpu_sbatch == ("--partition=gpu",)
    path = tmp_path / "c.yaml"
    path.write_text("sbatch: [--account=me, --partition=cpu]\n")
    _, config = parse(("launch",), ["--config", str(path), *words[-7:]])
    assert config.resources.sbatch == ("--account=me", "--partition=cpu")
