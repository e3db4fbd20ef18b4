"""Average the weights of models: `python -m scripts.models.average FIRST SECOND --out FOLDER`.

Averaging models that continue the same weights on different data can solve puzzles that only one
of them solves, at the cost of one model (model soups, Wortsman et al., 2022). Models of separate
training runs usually have no useful average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor

from data.model_format.facts import ModelFacts, check_model_folder, read_facts
from scripts.models.ship import read_model
from training.checkpoints.export import export_model


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Average the weights of models of one architecture."""

    models: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Model folders."""
    out: Path
    """Folder of the average; its facts are those of the last model."""


def main(config: Config) -> int:
    """Write the folder of the average.

    Raises:
        ValueError: There are fewer than two models, one is not a model folder, or they differ in
            board or kind of trace, or in names or shapes of weights.
        OSError: A folder cannot be read, or `out` exists.
    """
    if len(config.models) < 2:
        raise ValueError(f"models: got {len(config.models)}, allowed are two or more")
    for folder in config.models:
        check_model_folder(folder)
    *others, last = config.models
    facts = read_facts(last)
    for folder in others:
        _check_facts(folder, expected=facts, of=last)
    model = read_model(last)
    weights = [read_model(folder).state_dict() for folder in others]
    model.load_state_dict(averaged([*weights, model.state_dict()]))
    export_model(model, config.out, facts=facts)
    return 0


def _check_facts(folder: Path, *, expected: ModelFacts, of: Path) -> None:
    """Check that a model was trained for the same board and kind of trace as another."""
    facts = read_facts(folder)
    for name in ("board", "mode", "trace_rule", "segment_tokens"):
        got, allowed = getattr(facts, name), getattr(expected, name)
        if got != allowed:
            raise ValueError(f"{folder}: {name}: got {got}, allowed is that of {of}, {allowed}")


def averaged(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of weights, computed in fp64.

    Raises:
        ValueError: Names or shapes of the weights differ.
    """
    shapes = [{name: tuple(tensor.shape) for name, tensor in state.items()} for state in states]
    for other in shapes[1:]:
        if other != shapes[0]:
            name = min(n for n in {*shapes[0], *other} if shapes[0].get(n) != other.get(n))
            raise ValueError(
                f"models: {name}: got shapes {shapes[0].get(name)} and {other.get(name)}, "
                "allowed are models of one architecture"
            )
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(tensor.dtype)
        for name, tensor in states[0].items()
    }


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
