"""`sudocot models`: list the models that --model accepts by name."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from data.runtime.tables import print_table
from eval.report.columns import compact
from scripts.models.catalog import MODELS_FOLDER, WEIGHTS_FILE, read_catalog
from scripts.models.compiled import COMPILED_MODELS


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """List the models that --model accepts by name, with their accuracies.

    Trained models are in eval/models of the source repository, each with a card. Compiled models
    are the solver as a transformer, compiled on first use into the cache folder.

    Examples:
        sudocot models
        sudocot solve '1...|..3.|.4..|...2' --model 4x4-scot
        sudocot eval run --model 6x6-cot --data test.csv --sample all --out evals/6x6
    """


def main(config: Config) -> int:
    """Print the table."""
    del config
    rows = []
    for model in read_catalog().values():
        is_here = (MODELS_FOLDER / model.name / WEIGHTS_FILE).is_file()
        scores = [str(score) for score in model.scores]
        if not is_here:
            scores.append("not part of this installation; see eval/models of the repository")
        form = model.mode if model.segment_tokens is None else f"scot, {model.segment_tokens}"
        sizes = (compact(model.num_parameters), compact(model.num_tokens))
        rows.append((model.name, model.board, form, *sizes, "; ".join(scores)))
    for name, board in COMPILED_MODELS.items():
        rows.append((name, board, "scot, 512", "", "", "compiled: same as the solver"))
    names = ("name", "board", "form", "weights", "tokens", "solved, 95% interval")
    print_table(Console(markup=False, highlight=False), "models", names, rows)
    return 0
