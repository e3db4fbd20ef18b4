"""`sudocot publish model`: a model folder as a repository on the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import OmitArgPrefixes, Positional

from scripts.models.names import resolve_model
from scripts.publish.checks import model_problems
from scripts.publish.prepare import prepare_model
from scripts.publish.publish import Destination, publish


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Check a model folder and upload it to the Hugging Face hub.

    What does not belong to a model is left out. Refused are weights that are not those of their
    facts or not safetensors, a tokenizer of another board, a card without a licence or with
    malformed metadata, and files that name paths or the host of this machine; all at once.
    `sudocot eval card` writes results into the folder beforehand.

    Examples:
        sudocot publish model runs/scot/final --repo you/sudoku-scot --license mit --dry-run
        sudocot publish model runs/scot/final --repo you/sudoku-scot --license mit
    """

    folder: Positional[Path]
    """Model folder, such as the `final` of a run, or a name that `sudocot models` lists."""
    destination: OmitArgPrefixes[Destination]
    """Where to."""


def main(config: Config) -> int:
    """Publish, after a table of what goes there."""
    folder, licence = resolve_model(config.folder), config.destination.license
    return publish(
        config.destination,
        repo_type="model",
        prepare=lambda out: prepare_model(folder, out, licence=licence),
        find_problems=model_problems,
    )
