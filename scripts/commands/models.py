"""`sudocot models`: list the models that --model accepts by name."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

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
        sudocot eval run --model 6x6-scot --data test.csv --sample all --out evals/6x6
    """


def main(config: Config) -> int:
    """Print the table."""
    del config
    table = Table(title="models")
    for heading in (
        "name",
        "board",
        "form",
        "weights",
        "training tokens",
        "solved, 95% interval",
    ):
        table.add_column(heading, justify="right" if heading.endswith("s") else "left")
    for model in read_catalog().values():
        is_here = (MODELS_FOLDER / model.name / WEIGHTS_FILE).is_file()
        scores = [str(score) for score in model.scores]
        if not is_here:
            scores.append("not part of this installation; see eval/models of the repository")
        form = model.mode if model.segment_tokens is None else f"scot, {model.segment_tokens}"
        table.add_row(
            model.name,
            model.board,
            form,
            f"{model.num_parameters:,}",
            f"{model.num_tokens:,}",
            "\n".join(scores),
        )
    for name, board in COMPILED_MODELS.items():
        table.add_row(name, board, "scot, 512", "compiled", "none", "same as the solver")
    Console(highlight=False, soft_wrap=True).print(table)
    return 0
