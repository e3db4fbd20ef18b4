"""The trained models in `eval/models`: what is there, and the folder of a name.

`catalog.json` lists them with the sha256 of their weights, which is checked whenever a model is
opened by name. The weights are part of the repository and not of the wheel; the catalog is part of
both, so an install from a wheel knows what it lacks.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import eval as evaluation_package
from data.runtime.files import publish_file, to_json
from data.runtime.intervals import wilson_interval
from data.runtime.schema import read_record

MODELS_FOLDER = Path(evaluation_package.__file__).parent / "models"
CATALOG_FILE = "catalog.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Puzzles of a test set that a model solved, with greedy decoding."""

    test_set: str
    """What the puzzles are."""
    num_solved: int
    """Puzzles solved."""
    num_puzzles: int
    """Puzzles tried."""

    def __str__(self) -> str:
        """Percentage, 95% Wilson interval and number of puzzles."""
        low, high = wilson_interval(self.num_solved, trials=self.num_puzzles)
        share = self.num_solved / self.num_puzzles
        return (
            f"{100 * share:.2f}% [{100 * low:.2f}, {100 * high:.2f}] "
            f"of {self.num_puzzles:,} {self.test_set}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A trained model of the catalog."""

    name: str
    """Name, and name of its folder."""
    board: str
    """Board."""
    mode: str
    """cot or scot."""
    segment_tokens: int | None
    """Trace tokens of a segment (SCoT)."""
    num_parameters: int
    """Weights."""
    num_tokens: int
    """Tokens that it was trained on, padding not counted."""
    sha256: str
    """Digest of the weights file."""
    scores: tuple[Score, ...]
    """Results on puzzles that it was not trained on."""


def read_catalog(folder: Path | None = None) -> dict[str, TrainedModel]:
    """Trained models by name, in the order of the catalog; None takes that of this installation."""
    path = (folder or MODELS_FOLDER) / CATALOG_FILE
    models = read_record(path, tuple[TrainedModel, ...])
    return {model.name: model for model in models}


def write_catalog(models: dict[str, TrainedModel], folder: Path) -> None:
    """Replace the catalog."""
    publish_file(folder / CATALOG_FILE, to_json([asdict(model) for model in models.values()]))


def trained_model_folder(model: TrainedModel, folder: Path | None = None) -> Path:
    """Folder of a model of the catalog, its weights checked.

    Raises:
        FileNotFoundError: This installation lacks the files.
        ValueError: The weights are not those of the catalog.
    """
    weights = (folder or MODELS_FOLDER) / model.name / WEIGHTS_FILE
    if not weights.is_file():
        raise FileNotFoundError(
            f"model {model.name}: its files are not part of this installation; copy "
            f"eval/models/{model.name} from the source repository and pass the path of the copy"
        )
    digest = sha256_of(weights)
    if digest != model.sha256:
        raise ValueError(f"{weights}: got sha256 {digest}, allowed is {model.sha256}")
    return weights.parent


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
