"""The `sudocot` command: dispatch, option parsing, and mapping of errors to exit codes.

A command is an entry of `scripts.cli.commands.COMMANDS`. Its module defines `Config`, a frozen
dataclass whose docstring is the help text and whose fields are the options, and
`main(config) -> int`. If the defaults depend on other options, such as a preset, it also defines
`base_config(options) -> Config`. Only the standard library is imported before the command is known,
for a fast `--help`.

Exit codes: 0 success; 1 failed check; 2 invalid input or options; 70 internal error; 75 stopped by
a signal, resumed by the same command; 130 interrupted; 141 broken pipe. `SUDOCOT_DEBUG=1` shows
the traceback of an error.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.cli.commands import COMMANDS, GROUPS, CommandWords, command_words, unknown_command
from sudocot_cli import BAD_INPUT, INTERRUPTED, PACKAGES, find_imported_shadow

DONE, CRASHED, BROKEN_PIPE = 0, 70, 141
MODEL_FAMILIES = {"compiled_transformer": "compile_tm.hf"}
"""Modules that register a model family with transformers."""
MAX_MESSAGE = 4000
"""Maximum number of characters of an error message."""
_HELP = ("-h", "--help", "--help-all")


def parse(words: CommandWords, options: Sequence[str]) -> tuple[ModuleType, Any]:
    """Parse the options of a command, without running it.

    Args:
        words: Key of the command in `COMMANDS`.
        options: Its command-line arguments.

    Returns:
        The module of the command, and the config for its `main`.

    Raises:
        ValueError: An option is unknown or missing, or a value is not allowed.
        OSError: The file of `--config` cannot be read.
    """
    import tyro

    from data.runtime.ranges import check_ranges
    from scripts.cli.config_file import expand_config_file, tri_state_fields
    from scripts.cli.errors import (
        check_option_names,
        merge_repeated,
        parse_errors_as_value_errors,
    )
    from scripts.cli.options import list_options

    module = importlib.import_module(COMMANDS[words].module)
    options = expand_config_file(options, tri_states=tri_state_fields(module.Config))
    listed = list_options(module.Config)
    check_option_names(listed, options)
    options = merge_repeated(listed, options)
    has_presets = hasattr(module, "base_config")
    default = module.base_config(options) if has_presets else tyro.MISSING_NONPROP
    with parse_errors_as_value_errors(listed, options):
        config = tyro.cli(
            module.Config,
            prog=f"sudocot {' '.join(words)}",
            args=options,
            default=default,
            config=(tyro.conf.PositionalMetavarFromFieldName,),
        )
    check_ranges(config)
    return module, config


def main(argv: Sequence[str]) -> int:
    """Run a command line.

    Args:
        argv: Arguments after `sudocot`.

    Returns:
        Exit code.
    """
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    words = command_words(argv)
    _configure_logging()
    try:
        code = _run_command(words, argv[len(words) :]) if words else _without_command(argv)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        return _report_interrupt(stop, words)
    except BrokenPipeError:
        return _abandon_stdout()
    except SystemExit as stop:
        # raised by rich after a broken pipe
        if isinstance(stop.__context__, BrokenPipeError):
            return _abandon_stdout()
        if not isinstance(stop.code, int):
            raise
        return stop.code
    except Exception as error:
        interrupt = _find_interrupt(error)
        return _report_interrupt(interrupt, words) if interrupt else _report(error, words)
    return code


def run() -> None:
    """Run the command line of this process and exit; `sudocot_cli.run` calls it."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open for the whole run
    if sys.stdout is None:  # else the next file opened would get descriptor 1 and all output
        sys.exit(_complain("error: the standard output is closed", code=BAD_INPUT))
    # Notebooks set MPLBACKEND for child processes; the backend may not be installed here.
    os.environ.pop("MPLBACKEND", None)
    argv = sys.argv[1:]
    words = command_words(argv)
    is_help = argv[:1] == ["help"] or _asks_for_help(argv)
    if is_help or (words and not COMMANDS[words].uses_kernels):
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # numba takes most of the time of a help screen
    from data.runtime.signals import redeliver_interrupts
    from scripts.cli.busy_line import busy_line

    redeliver_interrupts()
    # Typed input would be interleaved with the status line.
    is_typed = "-" in argv and sys.stdin is not None and sys.stdin.isatty()
    summary = COMMANDS[words].summary if words and not is_typed else ""
    try:
        with busy_line(f"sudocot: {summary}" if summary else ""):
            sys.exit(main(argv))
    except KeyboardInterrupt:  # a second one, while the first is reported
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from the interpreter's exit


def _run_command(words: CommandWords, options: Sequence[str]) -> int:
    if _asks_for_help(options):
        return _show_help(words, options)
    if words[0] in GROUPS and len(words) == 1 and options and not _is_command(options[0]):
        raise ValueError(unknown_command([*words, options[0]]))
    from eval.network.families import FAMILY_MODULES

    FAMILY_MODULES.update(MODEL_FAMILIES)
    for word in options:
        if not word.isascii() and any("\udc80" <= char <= "\udcff" for char in word):
            raise ValueError(f"{word!a}: got bytes that are not UTF-8, allowed is UTF-8")
    module, config = parse(words, options)
    code: int = module.main(_with_model_folders(config))
    return code


def _is_command(word: str) -> bool:
    """Whether a word can follow a group that is a command itself, as `launch`."""
    return word.startswith("-") or any(words[0] == word for words in COMMANDS)


def _asks_for_help(options: Sequence[str]) -> bool:
    own = options[: options.index("--")] if "--" in options else options
    return bool(set(own) & set(_HELP))


def _with_model_folders(config: Any) -> Any:
    """Replace model names by folders; most commands have no model option."""
    if not (hasattr(config, "model") or hasattr(config, "init_from")):
        return config
    from scripts.models.names import with_model_folders

    return with_model_folders(config)


def _show_help(words: CommandWords, options: Sequence[str]) -> int:
    from scripts.cli.help import command_help
    from scripts.cli.options import list_options

    module = importlib.import_module(COMMANDS[words].module)
    default = module.base_config(options) if hasattr(module, "base_config") else None
    listed = list_options(module.Config, default=default)
    show_all = "--help-all" in options
    sys.stdout.write(command_help(words, module.Config, listed, show_all=show_all))
    return DONE


def _without_command(argv: Sequence[str]) -> int:
    """Handle arguments that are not a command: help, version, completion, or an unknown name."""
    from scripts.cli.help import group_overview, overview

    first = argv[0] if argv else ""
    if first in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"sudocot {version('sudocot')}\n")
        return DONE
    if first == "completion":
        from scripts.cli.completion import print_completion

        print_completion(" ".join(argv[1:]))
        return DONE
    group = first if first in GROUPS else ""
    rest = argv[1:] if group else argv
    if not rest or rest[0] in _HELP:
        stream = sys.stdout if rest else sys.stderr
        stream.write(group_overview(group) if group else overview())
        return DONE if rest else BAD_INPUT
    raise ValueError(unknown_command(argv))


def _configure_logging() -> None:
    from data.runtime.terminal import PrintableFormatter

    is_first_rank = os.environ.get("RANK", "0") == "0"
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("sudocot: %(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO if is_first_rank else logging.WARNING)


def _report(error: Exception, words: CommandWords) -> int:
    """Print an error as one line, or the report of an internal error."""
    if os.environ.get("SUDOCOT_DEBUG") == "1":
        raise error
    if isinstance(error, MemoryError):  # without imports, for which there may be no memory
        return _complain(
            ": ".join(filter(None, ["error: out of memory", str(error)])), code=BAD_INPUT
        )
    if isinstance(error, (ValueError, OSError, FloatingPointError)):  # NaN logits of a model
        return _complain(f"error: {_in_one_line(error)}", code=BAD_INPUT)
    if shadow := find_imported_shadow(error):
        return _complain(f"error: {shadow}", code=BAD_INPUT)
    from scripts.cli.errors import crash_report, is_out_of_memory, missing_package_line

    if is_out_of_memory(error):
        return _complain(f"error: out of memory: {_in_one_line(error)}", code=BAD_INPUT)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in PACKAGES:
        return _complain(f"error: {missing_package_line(error, words[0])}", code=BAD_INPUT)
    sys.stderr.write(crash_report(error))
    return CRASHED


def _report_interrupt(stop: KeyboardInterrupt, words: CommandWords) -> int:
    kept = COMMANDS[words].kept if words else ""
    return _complain(f"interrupted: {str(stop) or kept}", code=INTERRUPTED)


def _find_interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """Return the `KeyboardInterrupt` that a library converted to another exception, or None."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, KeyboardInterrupt):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def _in_one_line(error: Exception) -> str:
    from data.runtime.terminal import printable

    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{str(error.filename)[:MAX_MESSAGE]}: {error.strerror}")
    text = " ".join(str(error).split())
    if len(text) > MAX_MESSAGE:  # a huge value, such as a damaged field of a file
        text = f"{text[:MAX_MESSAGE]} ... ({len(text)} characters)"
    return printable(text) or type(error).__name__


def _complain(message: str, *, code: int) -> int:
    sys.stderr.write(f"sudocot: {message}\n")
    return code


def _abandon_stdout() -> int:
    # The interpreter flushes stdout again at exit, which must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
