"""Registry of the `sudocot` commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CommandWords = tuple[str, ...]
GROUPS = {
    "data": "puzzles and data sets",
    "train": "training",
    "eval": "evaluation",
    "compile": "machines as transformers with known weights",
    "paper": "the paper's experiments",
    "launch": "run commands as Slurm jobs, and show their state",
    "publish": "upload to the Hugging Face hub",
}
"""Groups of commands, in the order of the first screen."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Entry of a command."""

    module: str
    """Module with `Config` and `main`."""
    summary: str
    """One line for the list of commands."""
    kept: str = "nothing was written"
    """Message on Ctrl-C about the state that is kept, if the command raises none of its own."""
    uses_kernels: bool = True
    """Whether the command traces or solves puzzles. Otherwise numba is not imported, which saves
    half a second."""
    main_options: str = ""
    """Options shown by `--help`, in this order, separated by spaces; ten at most. If empty, all are
    shown. `--help-all` always shows all."""


COMMANDS: dict[CommandWords, CommandEntry] = {
    ("solve",): CommandEntry(
        "scripts.commands.solve",
        "solve puzzles and show the search",
        kept="printed results are complete",
    ),
    ("data", "build"): CommandEntry(
        "data.commands.build",
        "build a data set of traces from puzzles",
        kept="finished shards are kept; --resume continues from them",
        main_options=(
            "out generate board mode max-cot-length segment-tokens exclude sample shard resume"
        ),
    ),
    ("data", "merge"): CommandEntry(
        "data.commands.merge", "merge the parts of a build with --shard"
    ),
    ("data", "lengths"): CommandEntry(
        "data.commands.lengths",
        "build a table of CoT lengths, one row per puzzle",
        kept="finished chunks are kept; --resume continues from them",
        main_options="out split board max-tokens check-unique workers resume rebuild",
    ),
    ("data", "stats"): CommandEntry(
        "data.commands.stats", "show sizes and token budgets by cut-off N"
    ),
    ("data", "check-splits"): CommandEntry(
        "data.commands.check_splits", "find puzzles shared by two sets, up to symmetry"
    ),
    ("data", "generate"): CommandEntry(
        "data.commands.generate", "generate puzzles of any board and in a range of CoT lengths"
    ),
    ("data", "export"): CommandEntry(
        "data.commands.export", "export data sets as Parquet with a card, for the hub"
    ),
    ("train", "run"): CommandEntry(
        "training.commands.run",
        "train a model, or resume a training",
        kept="checkpoints are kept; the same command resumes from the newest",
        main_options="data out held-out preset model init-from budget precision seed wandb",
    ),
    ("train", "presets"): CommandEntry(
        "training.commands.presets",
        "list training presets and model presets",
        uses_kernels=False,
    ),
    ("train", "export"): CommandEntry(
        "training.commands.export", "export a checkpoint as a model folder"
    ),
    ("train", "import"): CommandEntry(
        "training.commands.import_", "convert a checkpoint of the paper's authors"
    ),
    ("train", "plot"): CommandEntry(
        "training.commands.plot", "plot loss and solve rate of runs against tokens"
    ),
    ("train", "wandb-sync"): CommandEntry(
        "training.commands.wandb_sync", "create a W&B run from a run folder"
    ),
    ("eval", "run"): CommandEntry(
        "eval.commands.run",
        "evaluate a model on puzzles",
        kept="finished puzzles are kept; the same command continues from them",
        main_options="model data out sample count engine precision device shard keep-tokens",
    ),
    ("eval", "merge"): CommandEntry(
        "eval.commands.merge", "merge the parts of an evaluation with --shard"
    ),
    ("eval", "certify"): CommandEntry(
        "eval.commands.certify", "check that the order of summation does not change the tokens"
    ),
    ("eval", "score"): CommandEntry(
        "eval.commands.score", "recompute the scores of an evaluation, without the model"
    ),
    ("eval", "import"): CommandEntry(
        "eval.commands.import_", "import predictions of other programs as an evaluation"
    ),
    ("eval", "compare"): CommandEntry(
        "eval.commands.compare", "compare two evaluations on their common puzzles"
    ),
    ("eval", "cohorts"): CommandEntry(
        "eval.commands.cohorts", "list the named cohorts of a puzzle list or of evaluations"
    ),
    ("eval", "card"): CommandEntry(
        "eval.commands.card", "write results into a model card, in the hub's format"
    ),
    ("eval", "replay"): CommandEntry(
        "eval.commands.replay", "show where a model deviates from the solver's trace, with margins"
    ),
    ("eval", "wandb"): CommandEntry(
        "eval.commands.wandb", "log evaluations as W&B runs: numbers, tables, plots"
    ),
    ("models",): CommandEntry(
        "scripts.commands.models",
        "list the models that --model accepts by name",
        uses_kernels=False,
    ),
    ("report",): CommandEntry("eval.commands.report", "write a leaderboard page of evaluations"),
    ("trace",): CommandEntry(
        "eval.commands.trace", "write a page that shows the search of a puzzle step by step"
    ),
    ("verify",): CommandEntry(
        "scripts.commands.verify", "check all files of a folder against their digests"
    ),
    ("launch",): CommandEntry(
        "scripts.commands.launch",
        "run commands as jobs of a Slurm cluster",
        kept="no job was submitted",
        main_options="recipe dry-run name folder gpus nodes cpus time shards",
    ),
    ("launch", "status"): CommandEntry(
        "scripts.commands.launch_status", "show the jobs of a launch: state, log, next step"
    ),
    ("publish", "dataset"): CommandEntry(
        "scripts.commands.publish_dataset", "check data sets and upload them to the hub"
    ),
    ("publish", "model"): CommandEntry(
        "scripts.commands.publish_model", "check a model folder and upload it to the hub"
    ),
    ("paper", "list"): CommandEntry(
        "scripts.commands.paper_list",
        "list the paper's experiments and the studies",
        uses_kernels=False,
    ),
    ("paper", "plan"): CommandEntry(
        "scripts.commands.paper_plan",
        "show the jobs of an experiment and their costs",
        uses_kernels=False,
        main_options="scale tokens seeds folder source gpus",
    ),
    ("paper", "run"): CommandEntry(
        "scripts.commands.paper_run",
        "run an experiment, locally or on a cluster",
        kept="finished jobs are kept; the same command continues",
        main_options="slurm dry-run scale tokens seeds folder source gpus jobs",
    ),
    ("paper", "report"): CommandEntry(
        "scripts.commands.paper_report", "report the results of an experiment and of the paper"
    ),
    ("paper", "costs"): CommandEntry(
        "scripts.commands.paper_costs",
        "estimate the costs of data, trainings and evaluations",
        uses_kernels=False,
    ),
    ("compile", "list"): CommandEntry(
        "compile_tm.commands.list_", "list the example machines and the format of machine files"
    ),
    ("compile", "estimate"): CommandEntry(
        "compile_tm.commands.estimate",
        "compute the sizes of a compiled machine without building it",
    ),
    ("compile", "dfa"): CommandEntry(
        "compile_tm.commands.dfa", "compile an automaton into a Hugging Face model"
    ),
    ("compile", "tm"): CommandEntry(
        "compile_tm.commands.tm", "compile a Turing machine into a Hugging Face model"
    ),
    ("compile", "sudoku"): CommandEntry(
        "compile_tm.commands.sudoku", "compile the Sudoku solver into a Hugging Face model"
    ),
    ("compile", "check"): CommandEntry(
        "compile_tm.commands.check", "compare a compiled model folder with its machine"
    ),
    ("compile", "run"): CommandEntry(
        "compile_tm.commands.run", "compile a machine and run the transformer on a word"
    ),
    ("compile", "show"): CommandEntry(
        "compile_tm.commands.show", "show the registers layer by layer, or write a step page"
    ),
    ("compile", "probe"): CommandEntry(
        "compile_tm.commands.probe", "write register values at layers of a compiled model"
    ),
    ("compile", "report"): CommandEntry(
        "compile_tm.commands.report", "write a report of the theorems' bounds and measurements"
    ),
    ("compile", "validate"): CommandEntry(
        "compile_tm.commands.validate",
        "check compiled random machines token by token",
        main_options="pairs seed workers conversion act att positions denoise",
    ),
}


def command_words(words: Sequence[str]) -> CommandWords:
    """Return the key in `COMMANDS` that the words start with; the empty tuple if there is none."""
    return next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in COMMANDS), ())


def unknown_command(words: Sequence[str]) -> str:
    """Return the message on words that start with no command, with the closest one of the group."""
    import difflib  # most command lines do not need it

    group = words[0] if len(words) > 1 and words[0] in GROUPS else ""
    word = words[1] if group else " ".join(words[:1])
    if group:
        names = [entry[-1] for entry in COMMANDS if entry[0] == group and len(entry) > 1]
    else:
        names = [entry[0] for entry in COMMANDS if len(entry) == 1] + list(GROUPS)
    # The most likely mistake is a command without its group, such as `sudocot build`.
    owners = [] if group else [entry for entry in COMMANDS if entry[-1] == word]
    nearest = difflib.get_close_matches(word, names, n=1)
    guesses = [" ".join(entry) for entry in owners] or [f"{group} {name}" for name in nearest]
    guess = f"did you mean {guesses[0].strip()!r}? " if guesses else ""
    unknown = f"{group} {word}".strip()
    return f"unknown command {unknown!r}: {guess}allowed are {', '.join(dict.fromkeys(names))}"
