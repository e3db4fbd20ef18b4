"""`sudocot train presets`: presets of options and of models for `sudocot train run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from data.runtime.tables import print_table
from training.config import PRESETS
from training.models.families import MODEL_PRESETS

_RECIPE_COLUMNS = ("--preset", "model", "optimizer", "peak rate", "precision", "update", "budget")
_MODEL_COLUMNS = ("--model", "family", "board", "layers", "width", "heads")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """List the presets of --preset and of --model, with their main values.

    Examples:
        sudocot train presets
    """


def main(_config: Config) -> int:
    """Print both tables."""
    console = Console()
    print_table(console, "recipes (update and budget in tokens)", _RECIPE_COLUMNS, _recipes())
    print_table(console, "models", _MODEL_COLUMNS, _models())
    return 0


def _recipes() -> Iterator[tuple[str, ...]]:
    for name, preset in PRESETS.items():
        config = preset(data=Path("data"), out=Path("out"))
        yield (
            name,
            config.model,
            config.optimizer.name,
            f"{config.optimizer.peak_lr:g}",
            config.precision,
            f"{config.tokens_per_update:,}",
            f"{config.budget / 1e6:,g} M",
        )


def _models() -> Iterator[tuple[str, ...]]:
    for name, make in MODEL_PRESETS.items():
        model = make()
        sizes = (model.num_layers, model.hidden_size, model.num_heads)
        yield (name, model.family, model.board, *map(str, sizes))
