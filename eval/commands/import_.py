"""`sudocot eval import`: imports predictions of other programs as an evaluation."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.columns import ColumnOptions
from data.runtime.ranges import Count, check_ranges
from eval.commands.tables import print_evaluation
from eval.results.folder import EvaluationFolder

_MAX_SHOWN = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Import predictions of other programs; all rows are validated and scored.

    Tables (.jsonl, .json, .csv, .tsv, .parquet) have columns `puzzle` and `prediction` or `answer`,
    and may have `seconds`, `tokens` and `cost` (US dollars). An answer is a grid, or a text of
    which the last complete grid counts. Arrays (.npy, .npz) hold puzzles and answers. The dumps of
    HRM and TRM, logs of inspect_ai and samples of lm-eval are read as they are. The result is an
    evaluation folder like any other.

    Examples:
        sudocot eval import preds.jsonl --name FRM --out evals/frm --like evals/10k
        sudocot eval import step_39060_all_preds.0 step_39060_all_preds.1 --name HRM --out evals/hrm
        sudocot eval import logs/2026-11-28T10-00-00_sudoku.eval --name gpt --out evals/gpt
    """

    files: Positional[tuple[Path, ...]]
    """Files of predictions, which are concatenated."""
    name: str
    """Name of the model in reports."""
    out: Path
    """Folder of the evaluation."""
    like: Path | None = None
    """Evaluation whose puzzles form the cohort; by default all puzzles of the files."""
    num_parameters: Count | None = None
    """Number of parameters of the model."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of tables."""

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("files: got none, allowed is at least one file of predictions")
        check_ranges(self)


def main(config: Config) -> int:
    """Import the predictions, then print the excluded rows and the summary."""
    from eval.predictions.evaluation import import_predictions
    from eval.predictions.read import read_predictions

    file = read_predictions(config.files, columns=config.columns.names)
    for error in file.errors[:_MAX_SHOWN]:
        logger.warning("%s", error)
    folder, counts = import_predictions(
        file,
        config.out,
        name=config.name,
        source=" ".join(path.name for path in config.files),
        num_parameters=config.num_parameters,
        like=None if config.like is None else EvaluationFolder.open(config.like),
    )
    console = Console(highlight=False, soft_wrap=True)
    num_rows = len(file.predictions) + counts.num_errors
    console.print(
        f"{num_rows:,} rows: {counts.num_results:,} results, {counts.num_duplicates:,} duplicates, "
        f"{counts.num_outside:,} outside the cohort or not unique, {counts.num_errors:,} without a "
        f"readable puzzle; {file.num_padding:,} rows of padding were skipped"
    )
    print_evaluation(console, folder)
    return 0
