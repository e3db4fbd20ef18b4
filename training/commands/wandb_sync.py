"""`sudocot train wandb-sync`: rebuild one clean W&B run from the metrics of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from data.runtime.wandb_runs import check_project
from training.reporting.wandb_sync import sync_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write a run's metrics as one new W&B run, without the steps that a requeue repeated.

    Examples:
        sudocot train wandb-sync runs/scot-6x6 --project sudoku
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    project: str = "sudocot"
    """W&B project."""
    name: str | None = None
    """Name of the W&B run; None for the name of the folder."""

    def __post_init__(self) -> None:
        check_project(self.project)


def main(config: Config) -> int:
    """Run the command."""
    sync_run(config.run, project=config.project, name=config.name)
    return 0
