"""An evaluation as a W&B run: settings, headline, tables, plots, and its files as an artifact."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from data.runtime.wandb_runs import choose_folder, choose_mode, log_folder
from eval.results.folder import EvaluationFolder
from eval.results.summary import Summary

PUZZLE_COLUMNS = (
    "key",
    "givens",
    "cot_length",
    "rating",
    "solved",
    "ended_by",
    "new_tokens",
    "segments",
    "seconds",
)
GROUP_COLUMNS = ("group", "puzzles", "solved", "accuracy", "low", "high", "median_cot_length")

logger = logging.getLogger(__name__)


def log_evaluation(folder: EvaluationFolder, *, project: str, name: str | None = None) -> None:
    """Write a finished evaluation as one new W&B run.

    Args:
        folder: The evaluation.
        project: W&B project.
        name: Name of the W&B run; None takes the folder's.

    Raises:
        ValueError: the evaluation is unfinished.
    """
    import wandb

    config, summary = folder.config, folder.summary
    if not summary.is_complete:
        raise ValueError(
            f"{folder.path}: {summary.accuracy.num_puzzles} of {config.num_sampled} puzzles have a "
            "result; run the evaluation to its end first"
        )
    path = folder.path.resolve()
    with wandb.init(
        project=project,
        name=name or path.name,
        job_type="evaluation",
        config=config.to_json(),
        dir=choose_folder(path.parent),
        mode=choose_mode(),
    ) as run:
        run.summary.update(headline(summary))
        run.log(_tables(wandb, folder, summary))
        log_folder(run, path, kind="evaluation", metadata=_digests(folder))
    logger.info("%s written to W&B project %s", folder.path, project)


def headline(summary: Summary) -> dict[str, Any]:
    """Numbers of an evaluation that runs are compared by."""
    ends = {f"ended_by/{name}": count for name, count in summary.ended_by.items()}
    return {
        **asdict(summary.accuracy),
        "mean_new_tokens": summary.mean_new_tokens,
        "mean_seconds": summary.mean_seconds,
        "wall_seconds": summary.cost.wall_seconds,
        **ends,
    }


def _tables(wandb: Any, folder: EvaluationFolder, summary: Summary) -> dict[str, Any]:
    """One table of all puzzles, one of each way of grouping, and a plot of each of the latter."""
    logged = {"puzzles": wandb.Table(columns=list(PUZZLE_COLUMNS), data=list(_puzzles(folder)))}
    for kind in dict.fromkeys(group.kind for group in summary.groups):
        rows = [
            [
                group.label,
                group.accuracy.num_puzzles,
                group.accuracy.num_solved,
                group.accuracy.accuracy,
                group.accuracy.low,
                group.accuracy.high,
                group.median_cot_length,
            ]
            for group in summary.groups
            if group.kind == kind
        ]
        table = wandb.Table(columns=list(GROUP_COLUMNS), data=rows)
        title = f"puzzles solved by {kind.replace('_', ' ')}"
        logged[f"by_{kind}"] = table
        logged[f"plots/{kind}"] = wandb.plot.bar(table, "group", "accuracy", title=title)
    return logged


def _puzzles(folder: EvaluationFolder) -> Iterator[list[Any]]:
    for row in folder.rows:
        puzzle = row.puzzle
        yield [
            puzzle.key,
            puzzle.givens,
            puzzle.cot_length,
            puzzle.rating,
            row.is_solved,
            str(row.ended_by),
            row.num_new_tokens,
            row.num_segments,
            row.seconds,
        ]


def _digests(folder: EvaluationFolder) -> dict[str, str]:
    config = folder.config
    return {
        "model_digest": config.model.digest,
        "data_digest": config.data.digest,
        "sample_digest": config.data.sample_digest,
    }
