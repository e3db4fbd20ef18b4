"""The table of commands: what `sudocot --help` lists, and where each command lives."""

from __future__ import annotations

from dataclasses import dataclass

CommandWords = tuple[str, ...]
GROUPS = {
    "data": "puzzles and data sets",
    "train": "training",
    "eval": "evaluation",
    "compile": "machines as transformers with known weights",
    "paper": "the paper's experiments",
    "launch": "jobs of a Slurm cluster",
    "publish": "upload to the Hugging Face hub",
}
"""Groups of commands, in the order of the first screen."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command lives."""

    module: str
    """Module with `Config` and `main`."""
    summary: str
    """One line for the list of commands."""
    kept: str = "nothing was written"
    """What Ctrl-C leaves behind, where the command raises no more exact words."""
    main_options: str = ""
    """Names of the options that `--help` shows, in this order, with spaces between; ten at most.
    If empty, all are shown. `--help-all` always shows all."""


COMMANDS: dict[CommandWords, CommandEntry] = {
    ("solve",): CommandEntry(
        "scripts.commands.solve",
        "solve puzzles and show the search",
        kept="what was printed is complete",
    ),
    ("data", "build"): CommandEntry(
        "data.commands.build",
        "make a data set of traces from puzzles",
        kept="finished shards are kept, and --resume goes on from them",
        main_options=(
            "out generate board mode max-cot-length segment-tokens exclude sample shard resume"
        ),
    ),
    ("data", "merge"): CommandEntry(
        "data.commands.merge", "join the parts that --shard made into one data set"
    ),
    ("data", "lengths"): CommandEntry(
        "data.commands.lengths",
        "make a table of CoT lengths, one row a puzzle",
        kept="finished chunks are kept, and --resume goes on from them",
        main_options="out split board max-tokens check-unique workers resume rebuild",
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
        main_options="data out held-out preset model init-from budget precision seed wandb",
    ),
    ("train", "presets"): CommandEntry(
        "training.commands.presets", "list the recipes and models that a training starts from"
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
        main_options="model data out sample count engine precision device shard keep-tokens",
    ),
    ("eval", "merge"): CommandEntry(
        "eval.commands.merge", "join the parts that --shard made into one evaluation"
    ),
    ("eval", "certify"): CommandEntry(
        "eval.commands.certify", "prove that no order of summation changed a token"
    ),
    ("eval", "score"): CommandEntry(
        "eval.commands.score", "score results again, without the model"
    ),
    ("eval", "import"): CommandEntry(
        "eval.commands.import_", "import predictions of other programs as an evaluation"
    ),
    ("eval", "compare"): CommandEntry(
        "eval.commands.compare", "compare two evaluations on the puzzles that both have"
    ),
    ("eval", "cohorts"): CommandEntry(
        "eval.commands.cohorts", "list named cohorts of puzzles, of a list or of evaluations"
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
    ("models",): CommandEntry(
        "scripts.commands.models", "list the models that --model knows by name"
    ),
    ("report",): CommandEntry("eval.commands.report", "make a leaderboard page from evaluations"),
    ("trace",): CommandEntry(
        "eval.commands.trace", "make a page that shows the search of one puzzle step by step"
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
        "scripts.commands.launch_status", "show the jobs of a launch: state, log, what is next"
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
        "scripts.commands.paper_plan",
        "show the jobs of an experiment, and what they cost",
        main_options="scale tokens seeds folder source gpus",
    ),
    ("paper", "run"): CommandEntry(
        "scripts.commands.paper_run",
        "run an experiment, here or on a cluster",
        kept="what is finished is kept, and the same command goes on",
        main_options="slurm dry-run scale tokens seeds folder source gpus jobs",
    ),
    ("paper", "report"): CommandEntry(
        "scripts.commands.paper_report", "show an experiment's results beside the paper's"
    ),
    ("paper", "costs"): CommandEntry(
        "scripts.commands.paper_costs", "work out what data, trainings and evaluations cost"
    ),
    ("compile", "list"): CommandEntry(
        "compile_tm.commands.list_", "list the example machines, and show how to write one"
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
    ("compile", "probe"): CommandEntry(
        "compile_tm.commands.probe", "write the values of registers at layers of a compiled model"
    ),
    ("compile", "report"): CommandEntry(
        "compile_tm.commands.report", "write what theorems say and what was measured, in one report"
    ),
    ("compile", "validate"): CommandEntry(
        "compile_tm.commands.validate",
        "check compiled random machines token for token",
        main_options="pairs seed workers conversion act att positions denoise",
    ),
}
