"""`sudocot.json` in a model folder: what a model was trained on and for, for programs."""

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
    """What a model was trained on and for; None where nobody knows."""

    board: str
    """Board whose puzzles it solves."""
    mode: Mode
    """Whether it writes a CoT, or an SCoT segment by segment."""
    trace_rule: str
    """Rule by which the traces were written."""
    segment_tokens: int | None
    """Trace tokens after which a segment ends; None for CoT."""
    data_digest: str | None
    """Digest of the data set."""
    precision: dict[str, str] | None
    """Number formats of the training run: `PrecisionPolicy.as_dict`."""
    training: dict[str, str | int | float] = field(default_factory=dict)
    """Further facts for the card, in order: tokens, steps, seed, ..."""

    def __post_init__(self) -> None:
        get_board(self.board)


def check_model_folder(folder: Path) -> None:
    """Check that a folder holds a model, without loading it.

    Raises:
        FileNotFoundError: It does not; the message names the model of a run folder.
    """
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return
    if (folder / "final" / FACTS_FILE).is_file():
        raise FileNotFoundError(
            f"{folder}: got a run folder, allowed is a model folder: {folder / 'final'}"
        )
    reason = "no model in this folder" if folder.is_dir() else "no such model folder"
    raise FileNotFoundError(f"{folder}: {reason}")


def read_facts(folder: Path) -> ModelFacts:
    """Read `sudocot.json`.

    Raises:
        ValueError: another format, or another vocabulary than this version has for the board.
        OSError: it is missing.
    """
    path = folder / FACTS_FILE
    if not path.is_file():
        check_model_folder(folder)
    record = read_json(path)
    digests = [record.pop(name, None) for name in ("vocabulary_digest", "weights_digest")]
    facts = parse_record(ModelFacts, record, path=path, format=FACTS_FORMAT)
    digest = Vocabulary(get_board(facts.board)).digest
    if digests[0] != digest:
        raise ValueError(
            f"{path}: vocabulary_digest: allowed is {digest}, other ids mean other text"
        )
    if not isinstance(digests[1], str):
        raise ValueError(f"{path}: weights_digest: got {digests[1]!r}, allowed is text")
    return facts
