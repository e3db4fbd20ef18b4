"""`sudocot eval wandb`: finished evaluations as runs in Weights & Biases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from data.runtime.wandb_runs import check_project
from eval.publish.wandb_run import log_evaluation
from eval.results.folder import EvaluationFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write finished evaluations as W&B runs: settings, headline, tables, plots and files.

    Large files are referred to, not copied. Without a key or a network the runs are written
    offline, and `wandb sync FOLDER` sends them later.

    Examples:
        sudocot eval wandb evals/10k evals/hardest --project sudoku
    """

    evaluations: Positional[tuple[Path, ...]]
    """Folders of evaluations; each becomes a run."""
    project: str = "sudocot"
    """W&B project."""

    def __post_init__(self) -> None:
        check_project(self.project)
        if not self.evaluations:
            raise ValueError("evaluations: got none, allowed is at least one folder")


def main(config: Config) -> int:
    """Write the runs."""
    for folder in [EvaluationFolder.open(path) for path in config.evaluations]:
        log_evaluation(folder, project=config.project)
    return 0
