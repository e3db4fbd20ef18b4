"""Error messages: invalid options, missing packages, and reports of internal errors."""

from __future__ import annotations

import contextlib
import difflib
import io
import platform
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from scripts.cli.options import Option

_BOX_SIDE, _BOX_LINE = "\u2502", "\u2500\u2500"
_ADVICE = ("Argument helptext", "For full helptext", "Perhaps you meant")
_STRAY_WORDS = "Unrecognized options: "
_REPORTED_PACKAGES = ("numpy", "numba", "pyarrow", "torch", "transformers", "tyro")
EXTRAS = {
    "train": "train",
    "eval": "eval",
    "report": "eval",
    "solve": "eval",
    "trace": "eval",
    "compile": "compile",
    "paper": "all",
    "launch": "all",
    "publish": "train",
}
"""Extra of the distribution that a command or group requires."""
PACKAGE_EXTRAS = {"wandb": "train", "openai": "api", "vllm": "vllm"}
"""Extras of packages that are optional within their command or group."""


def check_option_names(options: Sequence[Option], words: Sequence[str]) -> None:
    """Check that every `--name` is an option, and that no required option is missing.

    Args:
        options: Options of the command.
        words: Command-line arguments of the command.

    Raises:
        ValueError: An option is unknown, with the closest match, or required options are missing.
    """
    known = {flag: option for option in options for flag in option.flags}
    given = set()
    for word in words[: words.index("--")] if "--" in words else words:
        name = word.split("=")[0].replace("_", "-")
        if not word.startswith("--"):
            continue
        if name not in known:
            nearest = difflib.get_close_matches(name[2:], [flag[2:] for flag in known], n=1)
            guess = f"did you mean --{nearest[0]}? " if nearest else ""
            raise ValueError(f"{name}: no such option; {guess}--help-all lists all")
        given.add(known[name].name)
    missing = [
        f"--{option.name} {option.metavar}"
        for option in options
        if option.is_required and not option.is_positional and option.name not in given
    ]
    if missing:
        raise ValueError(f"missing: {', '.join(missing)}")


def merge_repeated(options: Sequence[Option], words: Sequence[str]) -> list[str]:
    """Merge repeated options with several values, of which the parser would keep the last only.

    `--exclude a --exclude b` becomes `--exclude a b`.

    Args:
        options: Options of the command.
        words: Command-line arguments of the command.

    Raises:
        ValueError: A repeated option has a value that starts with a dash.
    """
    end = words.index("--") if "--" in words else len(words)
    names = {flag for option in options if option.is_list for flag in option.flags}
    values: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    others: list[str] = []
    current: list[str] = others
    for word in words[:end]:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if word.startswith("--"):
            counts[name] += 1
            current = values.setdefault(name, []) if name in names else others
            if name in names:
                current += [value] if equals else []
                continue
        current.append(word)
    repeated = [name for name in values if counts[name] > 1]
    if not repeated:
        return list(words)
    for name in repeated:
        if any(value.startswith("-") for value in values[name]):
            raise ValueError(f"{name}: given {counts[name]} times, allowed is once with all values")
    merged = [word for name, given in values.items() for word in (name, *given)]
    return [*others, *merged, *words[end:]]


@contextlib.contextmanager
def parse_errors_as_value_errors(options: Sequence[Option], words: Sequence[str]) -> Iterator[None]:
    """Context manager that converts tyro's error box into a `ValueError` with one line.

    Args:
        options: Options of the command.
        words: Command-line arguments that tyro parses.

    Raises:
        ValueError: tyro exited with an error.
    """
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # the encoding of tyro's box
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            yield
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_rephrase(_text_in_box(shown), options, words)) from None


def _text_in_box(shown: io.TextIOWrapper) -> str:
    """Return the error text of the box, without the blocks of advice."""
    shown.seek(0)
    blocks = [""]
    for row in shown.read().splitlines()[1:-1]:
        text = row.strip(f"{_BOX_SIDE} ")
        if text.startswith(_BOX_LINE):
            blocks.append("")
        else:
            blocks[-1] += f" {text}"
    texts = [" ".join(block.split()) for block in blocks]
    return "; ".join(text for text in texts if not text.startswith(_ADVICE))


def _rephrase(message: str, options: Sequence[Option], words: Sequence[str]) -> str:
    """Convert a message of tyro to the common form: name, value, allowed values.

    Args:
        message: Text of tyro's box.
        options: Options of the command.
        words: Command-line arguments that tyro parsed.
    """
    if message.startswith("Missing from "):
        arguments = [option.name.upper() for option in options if option.is_positional]
        missing = [name for name in arguments if re.search(rf"\b{name}\b", message)]
        return f"missing: {', '.join(missing)}"
    number = re.fullmatch(r"Error parsing ([A-Z][\w-]*): [a-z].* '(.*)'", message)
    for option in options:
        if number and option.is_positional and option.name.upper() == number[1]:
            return f"{option.name.upper()}: got {number[2]}, allowed is {option.metavar}"
    own = re.fullmatch(r"Error parsing [A-Za-z]\w*: (.*)", message)
    if own:  # raised by a config class, which may mention other options
        return own[1]
    if message.startswith(_STRAY_WORDS):
        return f"unexpected argument: {message.removeprefix(_STRAY_WORDS)}"
    by_flag = {flag: option for option in options for flag in option.flags}
    named = [flag for flag in re.findall(r"--[\w.-]*\w", message) if flag in by_flag]
    if not named:
        return re.sub(r"^Error parsing [\w.-]+: ", "", message)
    option = by_flag[named[0]]
    got = " ".join(_values(words, option)) or "nothing"
    return f"--{option.name}: got {got}, allowed is {option.metavar or 'no value'}"


def _values(words: Sequence[str], option: Option) -> list[str]:
    """Return the value of the last occurrence of an option, as words."""
    values: list[str] = []
    is_value = False
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            is_value = name.replace("_", "-") in option.flags
            if is_value:
                values = [value] if equals else []
        elif is_value:
            values.append(word)
    return values


def missing_package_line(error: ModuleNotFoundError, command: str) -> str:
    """Return a message that names the extra with the missing package of a command."""
    package = (error.name or str(error)).split(".")[0]
    extra = PACKAGE_EXTRAS.get(package) or EXTRAS.get(command, "all")
    return f"{command} needs {package}, which is not installed: pip install 'sudocot[{extra}]'"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation of torch, of a thread's stack or of a library's code failed."""
    if type(error).__name__ == "OutOfMemoryError":  # torch, on a device
        return True
    messages = ("allocate memory", "can't start new thread", "failed to map segment")
    is_kind = isinstance(error, RuntimeError | ImportError)
    return is_kind and any(text in str(error) for text in messages)


def crash_report(error: BaseException) -> str:
    """Return the report of an internal error: traceback, versions, platform and command."""
    versions = [f"sudocot {_version('sudocot')}", f"Python {platform.python_version()}"]
    versions += [f"{name} {_version(name)}" for name in _REPORTED_PACKAGES]
    return (
        f"{''.join(traceback.format_exception(error))}\n"
        f"sudocot: internal error: {type(error).__name__}: {' '.join(str(error).split())}\n"
        "sudocot: this is a bug; please report it with the lines above, the command and:\n"
        f"sudocot: {', '.join(versions)}; {platform.platform()}\n"
        f"sudocot: command: {' '.join(sys.argv)}\n"
    )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
