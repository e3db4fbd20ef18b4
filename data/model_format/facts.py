"""`sudocot.json` in a model folder: what a model was trained on and for, for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data.runtime.documents import load_json
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
    if record.pop("format", None) != FACTS_FORMAT:
        raise ValueError(f"{path}: format: allowed is {FACTS_FORMAT}")
    try:
        digest = Vocabulary(get_board(record["board"])).digest
        if record.pop("vocabulary_digest") != digest:
            raise ValueError(
                f"{path}: vocabulary_digest: allowed is {digest}, other ids mean other text"
            )
        del record["weights_digest"]
        return ModelFacts(**record)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the facts of a model ({error})") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        ValueError: it does not; the message names file, line and column.
    """
    content = load_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: got {type(content).__name__}, allowed is an object")
    return content
