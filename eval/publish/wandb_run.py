"""Logs an evaluation as a W&B run: settings, summary, tables, boards, a trace, plots and files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, zip_longest
from typing import Any

from data.runtime.wandb_runs import choose_folder, choose_mode, log_folder
from data.text import tokens_to_lines, tokens_to_text
from eval.inspect.first_wrong import segment_tokens_of
from eval.inspect.streams import model_stream, solver_stream
from eval.results.folder import EvaluationFolder
from eval.results.records import STORED_FINISH_REASON, ResultRow
from eval.results.summary import Summary
from solver.puzzles import format_board, parse_puzzle

PUZZLE_COLUMNS = (
    "key",
    "givens",
    "cot_length",
    "rating",
    "solved",
    STORED_FINISH_REASON,
    "new_tokens",
    "segments",
    "seconds",
)
BOARD_COLUMNS = ("key", "cot_length", "solved", "puzzle", "output")
TRACE_COLUMNS = ("line", "model", "solver")
NUM_BOARDS = 4
"""Number of unsolved and of solved puzzles in the table of boards, those with the shortest CoT."""
MAX_TRACE_LINES = 1_000
GROUP_COLUMNS = ("group", "puzzles", "solved", "accuracy", "low", "high", "median_cot_length")

logger = logging.getLogger(__name__)


def log_evaluation(folder: EvaluationFolder, *, project: str) -> None:
    """Log a finished evaluation as a new W&B run, named after its folder.

    Args:
        folder: The evaluation.
        project: W&B project.

    Raises:
        ValueError: The evaluation is unfinished.
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
        name=path.name,
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
    """Return the metrics by which runs are compared."""
    reasons = {f"{STORED_FINISH_REASON}/{k}": n for k, n in summary.finish_reasons.items()}
    return {
        **asdict(summary.accuracy),
        "mean_new_tokens": summary.mean_new_tokens,
        "mean_seconds": summary.mean_seconds,
        "wall_seconds": summary.cost.wall_seconds,
        **reasons,
    }


def _tables(wandb: Any, folder: EvaluationFolder, summary: Summary) -> dict[str, Any]:
    """Return tables of puzzles, boards and a trace, and table and plot of each grouping."""
    logged = {
        "puzzles": wandb.Table(columns=list(PUZZLE_COLUMNS), data=list(_puzzles(folder))),
        "boards": wandb.Table(columns=list(BOARD_COLUMNS), data=list(_boards(folder))),
    }
    trace = _sample_trace(folder)
    if trace:
        logged["sample_trace"] = wandb.Table(columns=list(TRACE_COLUMNS), data=trace)
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
            str(row.finish_reason),
            row.num_new_tokens,
            row.num_segments,
            row.seconds,
        ]


def _samples(folder: EvaluationFolder) -> list[ResultRow]:
    """Return unsolved, then solved puzzles, each by CoT length."""
    return sorted(folder.rows, key=lambda row: (row.is_solved, row.puzzle.cot_length, row.key))


def _boards(folder: EvaluationFolder) -> Iterator[list[Any]]:
    samples = _samples(folder)
    for is_solved in (False, True):
        chosen = [row for row in samples if row.is_solved is is_solved]
        for row in chosen[:NUM_BOARDS]:
            _, givens = parse_puzzle(row.puzzle.givens, board=folder.board)
            puzzle = format_board(folder.board, givens)
            output = "" if row.output is None else tokens_to_text(folder.board, row.output)
            yield [row.key, row.puzzle.cot_length, is_solved, puzzle, output]


def _sample_trace(folder: EvaluationFolder) -> list[list[Any]]:
    """Return the lines of the model and of the solver on the first sample, if tokens are stored."""
    samples = _samples(folder)
    generated = folder.generated([samples[0].key]) if samples else {}
    if not generated:
        return []
    (segments,) = generated.values()
    board = folder.board
    _, givens = parse_puzzle(samples[0].puzzle.givens, board=board)
    solver = solver_stream(board, givens, segment_tokens=segment_tokens_of(folder.config))
    model = model_stream(givens, solver=solver, segments=segments, name="model", finish_reason="")
    texts = (tokens_to_lines(board, stream.ids).splitlines() for stream in (model, solver))
    pairs = zip_longest(*texts, fillvalue="")
    return [[number, *pair] for number, pair in enumerate(islice(pairs, MAX_TRACE_LINES), 1)]


def _digests(folder: EvaluationFolder) -> dict[str, str]:
    config = folder.config
    return {
        "model_digest": config.model.digest,
        "data_digest": config.data.digest,
        "sample_digest": config.data.sample_digest,
    }
