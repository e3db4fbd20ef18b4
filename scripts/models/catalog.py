"""Catalog of the trained models in `eval/models`.

`catalog.json` lists them with the SHA-256 of their weights, which is verified whenever a model is
opened by name. Repository and wheel both contain the catalog; only the repository contains the
weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import eval as evaluation_package
from data.runtime.digests import file_digest
from data.runtime.files import publish_file, to_json
from data.runtime.intervals import wilson_interval
from data.runtime.schema import read_record

MODELS_FOLDER = Path(evaluation_package.__file__).parent / "models"
CATALOG_FILE = "catalog.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Accuracy on a test set, with greedy decoding."""

    test_set: str
    """Description of the puzzles."""
    num_solved: int
    """Number of solved puzzles."""
    num_puzzles: int
    """Number of puzzles."""

    def __str__(self) -> str:
        """Return percentage, 95% Wilson interval and number of puzzles."""
        low, high = wilson_interval(self.num_solved, trials=self.num_puzzles)
        share = self.num_solved / self.num_puzzles
        return (
            f"{100 * share:.2f}% [{100 * low:.2f}, {100 * high:.2f}] "
            f"of {self.num_puzzles:,} {self.test_set}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """Entry of the catalog."""

    name: str
    """Name, also of its folder."""
    board: str
    """Board."""
    mode: str
    """cot or scot."""
    segment_tokens: int | None
    """Trace tokens per segment (SCoT)."""
    num_parameters: int
    """Number of parameters."""
    num_tokens: int
    """Number of non-padding training tokens."""
    sha256: str
    """SHA-256 of the weights file."""
    scores: tuple[Score, ...]
    """Results on held-out puzzles."""


def read_catalog(folder: Path | None = None) -> dict[str, TrainedModel]:
    """Return the trained models by name; None reads the catalog of this installation."""
    path = (folder or MODELS_FOLDER) / CATALOG_FILE
    models = read_record(path, tuple[TrainedModel, ...])
    return {model.name: model for model in models}


def write_catalog(models: dict[str, TrainedModel], folder: Path) -> None:
    """Write the catalog, replacing the old one."""
    publish_file(folder / CATALOG_FILE, to_json([asdict(model) for model in models.values()]))


def trained_model_folder(model: TrainedModel, folder: Path | None = None) -> Path:
    """Return the folder of a model, after verifying its weights.

    Raises:
        FileNotFoundError: The files are not part of this installation.
        ValueError: The digest of the weights differs from the catalog.
    """
    weights = (folder or MODELS_FOLDER) / model.name / WEIGHTS_FILE
    if not weights.is_file():
        raise FileNotFoundError(
            f"model {model.name}: its files are not part of this installation; copy "
            f"eval/models/{model.name} from the source repository and pass the path of the copy"
        )
    digest = file_digest(weights)
    if digest != model.sha256:
        raise ValueError(f"{weights}: got sha256 {digest}, allowed is {model.sha256}")
    return weights.parent
