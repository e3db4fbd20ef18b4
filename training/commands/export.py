"""`sudocot train export`: write the model folder of a checkpoint."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from annotated_types import Ge, Le

from data.runtime.ranges import check_ranges

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Export a checkpoint as a model folder, also of a run that is not finished.

    The folder is accepted by `eval run --model` and `train run --init-from`. With
    `--optimizer.average-share`, it contains the weights of the step instead of the average.

    Examples:
        sudocot train export runs/a models/a-2000 --step 2000
    """

    run: tyro.conf.Positional[Path]
    """Run folder. Its data set must be where it was during training."""
    target: tyro.conf.Positional[Path]
    """Folder to write, outside the run folder; it must not exist."""
    step: Annotated[int, Ge(0), Le(10**12)] | None = None
    """Step of the checkpoint; None for the newest."""

    def __post_init__(self) -> None:
        check_ranges(self)


def main(config: Config) -> int:
    """Run the command."""
    from training.checkpoints.outputs import export_checkpoint

    step = export_checkpoint(config.run, config.target, step=config.step)
    logger.info("%s: the model after step %d", config.target, step)
    return 0
