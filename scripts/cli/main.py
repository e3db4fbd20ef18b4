"""The `sudocot` command: finds a command's module, reads its options, maps errors to exit codes.

A command is one entry of `COMMANDS`. Its module defines `Config`, a frozen dataclass whose
docstring is the help text and whose fields are the options, and `main(config) -> int`. Where the
defaults depend on the options, as presets do, it also defines `base_config(options) -> Config`.
Only the standard library is imported before the command is known, so that help answers at once.

Exit codes: 0 done; 1 a check failed; 2 bad input or options; 130 interrupted; 141 the reader of
the output went away. `SUDOCOT_DEBUG=1` shows the traceback of an error.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

DONE, BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 0, 2, 130, 141
PACKAGES = ("solver", "data", "training", "eval", "compile_tm", "scripts")
MODEL_FAMILIES = {"compiled_transformer": "compile_tm.hf"}
"""Modules of this project that make a family of models known to transformers."""
CONFIG_FILE_HELP = (
    "`--config FILE` reads options from a YAML or JSON file, by their names as listed here; "
    "the command line wins over the file, the file over the defaults."
)


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command lives."""

    module: str
    """Module with `Config` and `main`."""
    summary: str
    """One line for the list of commands."""
    kept: str = "nothing was written"
    """What Ctrl-C leaves behind, where the command raises no more exact words."""


COMMANDS: dict[tuple[str, ...], CommandEntry] = {
    ("solve",): CommandEntry(
        "scripts.commands.solve",
        "solve puzzles and show the search",
        kept="what was printed is complete",
    ),
    ("data", "build"): CommandEntry(
        "data.commands.build",
        "make a data set of traces from puzzles",
        kept="finished shards are kept, and --resume goes on from them",
    ),
    ("data", "merge"): CommandEntry(
        "data.commands.merge", "join the parts that --shard made into one data set"
    ),
    ("data", "lengths"): CommandEntry(
        "data.commands.lengths",
        "make a table of CoT lengths, one row a puzzle",
        kept="finished chunks are kept, and --resume goes on from them",
    ),
    ("data", "stats"): CommandEntry(
        "data.commands.stats", "show sizes and token budgets by cut-off N"
    ),
    ("data", "check-splits"): CommandEntry(
        "data.commands.check_splits", "find puzzles that two sets share, up to symmetry"
    ),
    ("data", "generate"): CommandEntry(
        "data.commands.generate", "make puzzles, of any board and of a wanted CoT length"
    ),
    ("data", "export"): CommandEntry(
        "data.commands.export", "write data sets as Parquet with a card, for the hub"
    ),
    ("train", "run"): CommandEntry(
        "training.commands.run",
        "train a model, or go on training it",
        kept="the checkpoints are kept, and the same command goes on from the newest",
    ),
    ("train", "import"): CommandEntry(
        "training.commands.import_", "convert a checkpoint of the paper's authors"
    ),
    ("train", "plot"): CommandEntry(
        "training.commands.plot", "draw loss and solve rate of runs over the tokens"
    ),
    ("train", "wandb-sync"): CommandEntry(
        "training.commands.wandb_sync", "rebuild one W&B run from a run folder"
    ),
    ("eval", "run"): CommandEntry(
        "eval.commands.run",
        "let a model solve puzzles, and write down what came of each",
        kept="finished puzzles are kept, and the same command goes on from them",
    ),
    ("eval", "merge"): CommandEntry(
        "eval.commands.merge", "join the parts that --shard made into one evaluation"
    ),
    ("eval", "score"): CommandEntry(
        "eval.commands.score", "score results again, without the model"
    ),
    ("eval", "card"): CommandEntry(
        "eval.commands.card", "write results into a model folder, as the hub reads them"
    ),
    ("eval", "replay"): CommandEntry(
        "eval.commands.replay", "show where a model leaves the solver's trace, and by what margin"
    ),
    ("eval", "wandb"): CommandEntry(
        "eval.commands.wandb", "write evaluations as W&B runs: numbers, tables, plots"
    ),
    ("report",): CommandEntry("eval.commands.report", "make a leaderboard page from evaluations"),
    ("trace",): CommandEntry(
        "eval.commands.trace", "make a page that shows the search of one puzzle step by step"
    ),
    ("launch",): CommandEntry(
        "scripts.commands.launch",
        "run commands as jobs of a Slurm cluster",
        kept="no job was submitted",
    ),
    ("publish", "dataset"): CommandEntry(
        "scripts.commands.publish_dataset", "check data sets and upload them to the hub"
    ),
    ("publish", "model"): CommandEntry(
        "scripts.commands.publish_model", "check a model folder and upload it to the hub"
    ),
    ("paper", "list"): CommandEntry(
        "scripts.commands.paper_list", "list the paper's experiments and the studies"
    ),
    ("paper", "plan"): CommandEntry(
        "scripts.commands.paper_plan", "show the jobs of an experiment, and what they cost"
    ),
    ("paper", "run"): CommandEntry(
        "scripts.commands.paper_run",
        "run an experiment, here or on a cluster",
        kept="what is finished is kept, and the same command goes on",
    ),
    ("paper", "report"): CommandEntry(
        "scripts.commands.paper_report", "show an experiment's results beside the paper's"
    ),
    ("paper", "costs"): CommandEntry(
        "scripts.commands.paper_costs", "work out what data, trainings and evaluations cost"
    ),
    ("compile", "estimate"): CommandEntry(
        "compile_tm.commands.estimate", "tell the sizes of a compiled machine, without building it"
    ),
    ("compile", "dfa"): CommandEntry(
        "compile_tm.commands.dfa", "write an automaton as a Hugging Face model"
    ),
    ("compile", "tm"): CommandEntry(
        "compile_tm.commands.tm", "write a Turing machine as a Hugging Face model"
    ),
    ("compile", "sudoku"): CommandEntry(
        "compile_tm.commands.sudoku", "compile the Sudoku solver, and write it as a model"
    ),
    ("compile", "check"): CommandEntry(
        "compile_tm.commands.check", "compare a compiled model folder with its machine"
    ),
    ("compile", "run"): CommandEntry(
        "compile_tm.commands.run", "compile a machine, and let the transformer run it on a word"
    ),
    ("compile", "show"): CommandEntry(
        "compile_tm.commands.show", "show the registers of one position, layer by layer"
    ),
    ("compile", "report"): CommandEntry(
        "compile_tm.commands.report", "write what theorems say and what was measured, in one report"
    ),
    ("compile", "validate"): CommandEntry(
        "compile_tm.commands.validate", "check compiled random machines token for token"
    ),
}


def parse(words: tuple[str, ...], options: Sequence[str]) -> tuple[ModuleType, Any]:
    """Read the options of a command, and do nothing.

    Args:
        words: Key of the command in `COMMANDS`.
        options: The words after it.

    Returns:
        The module of the command, and the config for its `main`.

    Raises:
        ValueError: A value is not allowed.
        OSError: The file of `--config` cannot be read.
        SystemExit: tyro has shown what is wrong, or help.
    """
    import tyro

    from scripts.cli.config_file import expand_config_file, tri_state_fields

    module = importlib.import_module(COMMANDS[words].module)
    options = expand_config_file(options, tri_states=tri_state_fields(module.Config))
    has_presets = hasattr(module, "base_config")
    config = tyro.cli(
        module.Config,
        prog=f"sudocot {' '.join(words)}",
        description=f"{(inspect.getdoc(module.Config) or '').strip()}\n\n{CONFIG_FILE_HELP}",
        args=options,
        default=module.base_config(options) if has_presets else tyro.MISSING_NONPROP,
        config=(tyro.conf.PositionalMetavarFromFieldName,),
    )
    return module, config


def main(argv: Sequence[str]) -> int:
    """Run one command line.

    Args:
        argv: The words after `sudocot`.

    Returns:
        The exit code.
    """
    words = next((tuple(argv[:n]) for n in (2, 1) if tuple(argv[:n]) in COMMANDS), None)
    if words is None:
        return _answer_without_command(argv)
    _configure_logging()
    try:
        code = _run_command(words, argv[len(words) :])
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        return _complain(f"interrupted: {str(stop) or COMMANDS[words].kept}", code=INTERRUPTED)
    except BrokenPipeError:
        return _abandon_stdout()
    except SystemExit as stop:
        # tyro leaves this way after help or wrong options, rich after a broken pipe.
        if isinstance(stop.__context__, BrokenPipeError):
            return _abandon_stdout()
        if not isinstance(stop.code, int):
            raise
        return stop.code
    except (ValueError, OSError) as error:
        if os.environ.get("SUDOCOT_DEBUG") == "1":
            raise
        return _complain(f"error: {_in_one_line(error)}", code=BAD_INPUT)
    return code


def run() -> None:
    """Entry point of the console script."""
    sys.exit(main(sys.argv[1:]))


def _run_command(words: tuple[str, ...], options: Sequence[str]) -> int:
    from eval.network.families import FAMILY_MODULES

    FAMILY_MODULES.update(MODEL_FAMILIES)
    module, config = parse(words, options)
    code: int = module.main(config)
    return code


def _answer_without_command(argv: Sequence[str]) -> int:
    if list(argv) == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"sudocot {version('sudocot')}\n")
        return DONE
    group = tuple(argv[:1]) if any(argv[:1] == list(words[:-1]) for words in COMMANDS) else ()
    rest = argv[len(group) :]
    if not rest or rest[0] in ("-h", "--help"):
        stream = sys.stdout if rest else sys.stderr
        stream.write(_help_text(group))
        return DONE if rest else BAD_INPUT
    unknown = " ".join((*group, rest[0]))
    names = [" ".join(words) for words in COMMANDS]
    nearest = _nearest(unknown, names)
    guess = f"did you mean {nearest!r}? " if nearest else ""
    return _complain(
        f"error: unknown command {unknown!r}: {guess}commands are {', '.join(names)}",
        code=BAD_INPUT,
    )


def _help_text(group: tuple[str, ...]) -> str:
    entries = {
        " ".join(words): entry.summary
        for words, entry in COMMANDS.items()
        if words[: len(group)] == group
    }
    width = max(map(len, entries))
    lines = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in entries.items())
    usage = " ".join(("sudocot", *group, "COMMAND [OPTIONS]"))
    return (
        f"usage: {usage}\n\n"
        "Small transformers that solve Sudoku by writing out a solver's search.\n\n"
        f"commands:\n{lines}\n\n"
        "`sudocot COMMAND --help` lists the options of a command.\n"
    )


def _nearest(unknown: str, names: Iterable[str]) -> str | None:
    import difflib

    # A command can be meant by its last word alone: `sudocot build`.
    spellings = {spelling: name for name in names for spelling in (name.split()[-1], name)}
    close = difflib.get_close_matches(unknown, spellings, n=1)
    return spellings[close[0]] if close else None


def _configure_logging() -> None:
    is_first_rank = os.environ.get("RANK", "0") == "0"
    logging.basicConfig(level=logging.WARNING, format="sudocot: %(levelname)s: %(message)s")
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO if is_first_rank else logging.WARNING)


def _in_one_line(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _complain(message: str, *, code: int) -> int:
    sys.stderr.write(f"sudocot: {message}\n")
    return code


def _abandon_stdout() -> int:
    # The interpreter flushes stdout once more at exit; that must not fail a second time.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


if __name__ == "__main__":
    run()
