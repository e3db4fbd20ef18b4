"""Training recipes side by side, several seeds each: `python -m scripts.bench.recipes --help`.

Every run is a `sudocot train run` of its own with one thread, two or more at a time; a finished one
is not repeated, so the study can be stopped and widened. The seed draws the weights and the order
of the data. Reported are the tokens at which a loss and a solve rate are first reached, over the
seeds, and the ratio of the loss column to the first recipe's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from data.cpus import available_cpus
from scripts.bench.harness import Report
from training.plots import Curve, RunCurves, draw_curves, read_curves, tokens_to_reach

_ADAMW = ("--optimizer.name", "adamw")
RECIPES: dict[str, tuple[str, ...]] = {
    # The paper's: AdamW at 5e-4 and 1e5 tokens an update.
    "paper": (*_ADAMW, "--optimizer.peak-lr", "5e-4", "--tokens-per-update", "100000"),
    "adamw-8k": (*_ADAMW, "--tokens-per-update", "8192"),
    "adamw-2k": (*_ADAMW, "--tokens-per-update", "2048"),
    "adamw-2k-5e-4": (*_ADAMW, "--optimizer.peak-lr", "5e-4", "--tokens-per-update", "2048"),
    "muon-8k": ("--tokens-per-update", "8192"),
    "muon-2k": (),
    "muon-1k": ("--tokens-per-update", "1024"),
    "muon-2k-1e-3": ("--optimizer.peak-lr", "1e-3"),
    "muon-2k-4e-3": ("--optimizer.peak-lr", "4e-3"),
    "muon-2k-wsd": ("--optimizer.schedule", "wsd"),
    "muon-2k-qk-norm": ("--architecture.qk-norm",),
    "muon-2k-zero-init": ("--architecture.init", "zero"),
    "muon-2k-scaled-init": ("--architecture.init", "scaled"),
    "muon-2k-wide": ("--architecture.hidden-size", "192", "--architecture.num-heads", "6"),
}
"""Options beyond `--preset small`, which is Muon at 2e-3 and 2,048 tokens an update."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare recipes on one data set."""

    data: Path
    """Data set to train on."""
    held_out: Path
    """Data set for the solve rate."""
    runs: Path
    """Folder for the run folders."""
    model: str = "small-4x4"
    """Model preset."""
    recipes: tuple[str, ...] = ("paper", "adamw-8k", "adamw-2k", "muon-8k", "muon-2k")
    """Recipes, by name; the first is the baseline."""
    seeds: int = 3
    """Runs of each recipe."""
    budget: int = 4_000_000
    """Non-padding tokens of a run."""
    eval_tokens: int = 500_000
    """Tokens between two looks at the solve rate."""
    losses: tuple[float, ...] = (0.3, 0.1)
    """Losses to reach."""
    solve_rates: tuple[float, ...] = (0.5, 0.9)
    """Solve rates to reach."""
    jobs: int | None = None
    """Runs at a time; None gives every CPU one."""
    out: Path | None = None
    """JSON file to write."""
    plot: Path | None = None
    """Plot to write: .svg, .png or .pdf."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.recipes if name not in RECIPES]
        if unknown or not self.recipes:
            raise ValueError(f"recipes: got {unknown}, allowed are {', '.join(RECIPES)}")


def main(config: Config) -> int:
    """Run what is not there yet, and report."""
    cells = [(name, seed) for name in config.recipes for seed in range(config.seeds)]
    with ThreadPoolExecutor(config.jobs or available_cpus()[0]) as pool:
        folders = list(pool.map(lambda cell: _train(config, *cell), cells))
    groups: dict[str, list[RunCurves]] = {}
    for (name, _), folder in zip(cells, folders, strict=True):
        groups.setdefault(name, []).append(read_curves(folder))
    baseline = groups[config.recipes[0]]
    rows = [_row(config, name, runs, baseline=baseline) for name, runs in groups.items()]
    title = f"{config.model}, {config.seeds} seeds, {config.budget / 1e6:g}M tokens"
    facts = {"model": config.model, "data": config.data.name, "budget": config.budget}
    Report(title=title, rows=rows, facts=facts).publish(config.out)
    if config.plot is not None:
        draw_curves(groups, config.plot, title=title)
    return 0


def _train(config: Config, recipe: str, seed: int) -> Path:
    """Run one training to its end.

    Raises:
        subprocess.CalledProcessError: it failed; its log lies beside the run folder.
    """
    folder = config.runs / f"{recipe}-{seed}"
    options = RECIPES[recipe]
    per_update = int(options[-1]) if "--tokens-per-update" in options else 2_048
    command = [
        *(sys.executable, "-m", "scripts.cli", "train", "run", "--preset", "small"),
        *("--model", config.model, "--data", str(config.data), "--out", str(folder)),
        *("--held-out", str(config.held_out), "--budget", str(config.budget)),
        *("--seed", str(seed), "--data-seed", str(seed)),
        *("--eval-every", str(max(1, config.eval_tokens // per_update))),
        *("--log-every", str(max(1, 40_960 // per_update)), "--max-eval-share", "1", *options),
    ]
    config.runs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (config.runs / f"{folder.name}.log").open("ab") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, env=environment)
    return folder


def _row(
    config: Config, name: str, runs: list[RunCurves], *, baseline: list[RunCurves]
) -> dict[str, Any]:
    row: dict[str, Any] = {"recipe": name, "n": len(runs)}
    for loss in config.losses:
        ours = _reached([run.loss for run in runs], loss, from_above=True)
        theirs = _reached([run.loss for run in baseline], loss, from_above=True)
        row[f"M tokens to loss {loss:g}"] = _range_text(ours)
        row[f"ratio at {loss:g}"] = _ratio_text(theirs, ours, budget=config.budget)
    for rate in config.solve_rates:
        reached = _reached([run.solve_rate for run in runs], rate, from_above=False)
        row[f"M tokens to solve rate {rate:g}"] = _range_text(reached)
    row["last loss"] = _spread_text([run.loss.values[-1] for run in runs])
    row["last solve rate"] = _spread_text([run.solve_rate.values[-1] for run in runs])
    return row


def _reached(curves: list[Curve], level: float, *, from_above: bool) -> list[float | None]:
    return [tokens_to_reach(curve, level, from_above=from_above) for curve in curves]


def _range_text(tokens: list[float | None]) -> str:
    """Least and most over the seeds; how many got there, where not all did."""
    known = [value / 1e6 for value in tokens if value is not None]
    if not known:
        return "never"
    text = f"{min(known):.2f} to {max(known):.2f}"
    return text if len(known) == len(tokens) else f"{text} ({len(known)} of {len(tokens)})"


def _ratio_text(theirs: list[float | None], ours: list[float | None], *, budget: int) -> str:
    """Mean tokens of the baseline over ours; a lower bound where the baseline never got there."""
    if None in ours:
        return "-"
    own_mean = np.mean([value for value in ours if value is not None])
    mean = np.mean([budget if value is None else value for value in theirs])
    return f"{'at least ' if None in theirs else ''}{mean / own_mean:.1f}"


def _spread_text(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
