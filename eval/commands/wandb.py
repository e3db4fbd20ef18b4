"""`sudocot eval wandb`: logs finished evaluations to Weights & Biases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from data.runtime.wandb_runs import check_project
from eval.publish.wandb_run import log_evaluation
from eval.results.folder import EvaluationFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Log finished evaluations as W&B runs: settings, metrics, tables, plots and files.

    Large files are logged as references. Without a key or a network, the runs are written offline;
    `wandb sync FOLDER` uploads them later.

    Examples:
        sudocot eval wandb evals/10k evals/hardest --project sudoku
    """

    evaluations: Positional[tuple[Path, ...]]
    """Evaluation folders; each becomes a run."""
    project: str = "sudocot"
    """W&B project."""

    def __post_init__(self) -> None:
        check_project(self.project)
        if not self.evaluations:
            raise ValueError("evaluations: got none, allowed is at least one folder")


def main(config: Config) -> int:
    """Log the runs."""
    for folder in [EvaluationFolder.open(path) for path in config.evaluations]:
        log_evaluation(folder, project=config.project)
    return 0
