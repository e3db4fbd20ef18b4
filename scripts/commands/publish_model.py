"""`sudocot publish model`: upload a model folder to the Hugging Face hub."""

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

    Only model files are uploaded. Refuses weights that are not safetensors or differ from the
    digest in sudocot.json, a tokenizer of another board, a card without a license or with malformed
    metadata, and files with absolute paths or the host name; all problems are listed.
    `sudocot eval card` adds results to the card.

    Examples:
        sudocot publish model runs/scot/final --repo you/sudoku-scot --license mit --dry-run
        sudocot publish model runs/scot/final --repo you/sudoku-scot --license mit
    """

    folder: Positional[Path]
    """Model folder, such as `final` of a run, or a name listed by `sudocot models`."""
    destination: OmitArgPrefixes[Destination]
    """Destination."""


def main(config: Config) -> int:
    """Check and upload the model."""
    folder, license_id = resolve_model(config.folder), config.destination.license
    return publish(
        config.destination,
        repo_type="model",
        prepare=lambda out: prepare_model(folder, out, license_id=license_id),
        find_problems=model_problems,
    )
