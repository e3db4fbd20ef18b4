"""Rebuild one clean W&B run from `metrics.jsonl`.

W&B rejects decreasing steps, so a requeued run has gaps or several parts there. Superseded rows are
dropped here, and the others are written as one new run with increasing steps.
"""

from __future__ import annotations

import logging
from itertools import groupby
from pathlib import Path

from data.runtime.wandb_runs import choose_folder, choose_mode
from training.reporting.metrics import METRICS_FILE, Row, read_metrics
from training.reporting.trackers import MIRRORED_KINDS, log_results, row_values
from training.run_folder import RunFolder, read_run_config

logger = logging.getLogger(__name__)


def merge_by_step(rows: list[Row]) -> list[tuple[int, dict[str, float]]]:
    """Merge the numbers of all rows of a step, in increasing order of steps."""
    pairs = [row_values(row) for row in rows if row["kind"] in MIRRORED_KINDS]
    pairs.sort(key=lambda pair: pair[0])
    merged = []
    for step, group in groupby(pairs, key=lambda pair: pair[0]):
        values: dict[str, float] = {}
        for _, numbers in group:
            values |= numbers
        merged.append((step, values))
    return merged


def sync_run(folder: Path, *, project: str, name: str | None = None) -> int:
    """Write the metrics, model and data set of a run folder as a new W&B run.

    Args:
        folder: Run folder.
        project: W&B project.
        name: Name of the W&B run; None for the name of the folder.

    Returns:
        Number of steps written.

    Raises:
        ValueError: The metrics or the config of the run are damaged.
        OSError: The folder is not a run folder.
    """
    import wandb

    record = read_run_config(folder)
    data = Path(str(record.config.get("data", "")))
    steps = merge_by_step(read_metrics(folder / METRICS_FILE))
    name = name or folder.resolve().name
    with wandb.init(
        project=project,
        name=name,
        config=record.config,
        dir=choose_folder(folder),
        mode=choose_mode(),
    ) as run:
        for step, values in steps:
            run.log(values, step=step)
        log_results(run, model=RunFolder(folder).final, data=data, data_digest=record.data_digest)
    logger.info("%d steps of %s written to W&B project %s", len(steps), folder, project)
    return len(steps)
