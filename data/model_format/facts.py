"""`sudocot.json` of a model folder: machine-readable facts about task and training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from data.runtime.documents import read_json
from data.runtime.schema import parse_record
from solver.boards import get_board
from solver.vocabulary import Vocabulary

FACTS_FILE = "sudocot.json"
FACTS_FORMAT = 1
Mode = Literal["cot", "scot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """Facts about task and training of a model; None if unknown."""

    board: str
    """Board of the model."""
    mode: Mode
    """Whether it generates a CoT, or an SCoT segment by segment."""
    trace_rule: str
    """Identifier of the trace rule."""
    segment_tokens: int | None
    """Minimum trace tokens before a summary; None for CoT."""
    data_digest: str | None
    """Digest of the training data."""
    precision: dict[str, str] | None
    """Number formats of the training run: `PrecisionPolicy.as_dict`."""
    training: dict[str, str | int | float] = field(default_factory=dict)
    """Further facts for the model card, in order: tokens, steps, seed, ..."""

    def __post_init__(self) -> None:
        get_board(self.board)


def model_name(folder: Path) -> str:
    """Return the name of a model folder, or that of its run for the folder `final` of a run."""
    folder = folder.resolve()
    return folder.parent.name if folder.name == "final" else folder.name


def check_model_folder(folder: Path) -> None:
    """Check that a folder contains a model, without loading it.

    Raises:
        FileNotFoundError: It does not; for a run folder, the message names its model folder, or
            how to export a checkpoint.
    """
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return
    if (folder / "final" / FACTS_FILE).is_file():
        raise FileNotFoundError(
            f"{folder}: got a run folder, allowed is a model folder: {folder / 'final'}"
        )
    if (folder / "checkpoints").is_dir():
        raise FileNotFoundError(
            f"{folder}: the run is not finished; `sudocot train export {folder} MODEL` exports its "
            "newest checkpoint"
        )
    reason = "no model in this folder" if folder.is_dir() else "no such model folder"
    raise FileNotFoundError(f"{folder}: {reason}")


def read_facts(folder: Path) -> ModelFacts:
    """Read `sudocot.json`.

    Raises:
        ValueError: Another format, or another vocabulary of the board than in this version.
        OSError: The file is missing.
    """
    path = folder / FACTS_FILE
    if not path.is_file():
        check_model_folder(folder)
    record = read_json(path)
    digests = [record.pop(name, None) for name in ("vocabulary_digest", "weights_digest")]
    facts = parse_record(ModelFacts, record, path=path, format=FACTS_FORMAT)
    digest = Vocabulary(get_board(facts.board)).digest
    if digests[0] != digest:
        raise ValueError(f"{path}: vocabulary_digest: allowed is {digest}; token ids would differ")
    if not isinstance(digests[1], str):
        raise ValueError(f"{path}: weights_digest: got {digests[1]!r}, allowed is text")
    return facts
