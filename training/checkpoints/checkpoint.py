"""Atomic checkpoints.

    checkpoints/step-000002000/
        model.safetensors    weights by name
        optimizer.pt         optimizer state by parameter name
        random.pt            random states of each process
        usage.json           counts and position in the data
        puzzles_seen.npy     one bit per puzzle
        facts.json           data digest
        config.json          the run's config
        complete.json        size and sha256 of each file; written last

A checkpoint is written to a temporary sibling, flushed to the disk and renamed. `load_newest` loads
the newest one whose files match its marker, and warns of each one it skips. The learning rate is a
function of the counts, so there is no scheduler to save. No path is stored, so a run folder can be
moved.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from data.model_format.weights import clear_write_errors
from data.runtime.digests import file_digest
from data.runtime.documents import read_json
from data.runtime.files import remove_superseded, staged_directory, to_json
from data.runtime.schema import read_record
from training.batching.usage import Usage
from training.checkpoints.state import TrainingState

SCHEMA = 1
NUM_KEPT = 2
"""Checkpoints kept: the newest, and the previous one in case the newest is damaged."""

MARKER = "complete.json"
_FILES = {
    *("model.safetensors", "optimizer.pt", "random.pt", "usage.json", "puzzles_seen.npy"),
    *("facts.json", "config.json"),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """State of a run at a step; a resumed run is bit-identical to an uninterrupted one."""

    state: TrainingState
    """Weights, optimizer state and random states."""
    usage: Usage
    """Counts and the position in the data."""
    data_digest: str
    """Digest of the data set."""
    config: dict[str, Any]
    """The run's config as JSON values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fingerprint:
    """Size and digest of a file."""

    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path) -> _Fingerprint:
        return cls(num_bytes=file.stat().st_size, sha256=file_digest(file))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Marker:
    """Content of `complete.json`."""

    files: dict[str, _Fingerprint]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """Content of `facts.json`."""

    data_digest: str


def step_folder(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step in a run's checkpoint folder."""
    return folder / f"step-{step:09d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, then remove superseded ones.

    Args:
        folder: The run's checkpoint folder.
        checkpoint: Checkpoint to write.

    Returns:
        The folder of the checkpoint.

    Raises:
        OSError: It cannot be written; existing checkpoints are kept.
    """
    usage, state = checkpoint.usage, checkpoint.state
    path = step_folder(folder, usage.step)
    # An existing folder of that name was skipped as damaged when this session began.
    with staged_directory(path, replace=True) as staging:
        with clear_write_errors(path):
            save_file(state.model, staging / "model.safetensors")
            torch.save(state.optimizer, staging / "optimizer.pt")
            torch.save(state.random, staging / "random.pt")
        facts = {"schema": SCHEMA, "data_digest": checkpoint.data_digest}
        (staging / "facts.json").write_bytes(to_json(facts))
        counts = dataclasses.asdict(usage) | {"puzzles_seen": usage.puzzles_seen.size}
        (staging / "usage.json").write_bytes(to_json(counts))
        np.save(staging / "puzzles_seen.npy", np.packbits(usage.puzzles_seen))
        (staging / "config.json").write_bytes(to_json(checkpoint.config))
        marker = _Marker(files={file.name: _Fingerprint.of(file) for file in staging.iterdir()})
        (staging / MARKER).write_bytes(to_json({"schema": SCHEMA, **dataclasses.asdict(marker)}))
    _prune(folder, newest=path)
    return path


def load_newest(folder: Path) -> Checkpoint | None:
    """Load the newest complete checkpoint of a folder, or None; warn of damaged ones."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        fault = find_fault(path)
        if fault is None:
            return _load(path)
        logger.warning("%s is skipped: %s", path, fault)
    return None


def load_step(folder: Path, step: int) -> Checkpoint:
    """Load the checkpoint of a step.

    Raises:
        ValueError: There is none, or it is damaged; the message lists the steps.
    """
    path = step_folder(folder, step)
    if not path.is_dir():
        steps = ", ".join(str(int(p.name[5:])) for p in sorted(folder.glob("step-*"))) or "none"
        raise ValueError(f"step: got {step}, {folder} has checkpoints of {steps}")
    if fault := find_fault(path):
        raise ValueError(f"{path}: {fault}")
    return _load(path)


def find_fault(path: Path) -> str | None:
    """Describe the damage of a checkpoint folder; None if it is complete and undamaged."""
    marker = path / MARKER
    if not marker.is_file():
        return f"it has no {MARKER}, so it is incomplete"
    try:
        files = read_record(marker, _Marker, schema=SCHEMA).files
    except ValueError as error:
        return f"{MARKER} is damaged: {str(error).removeprefix(f'{marker}: ')}"
    if lacking := _FILES - files.keys():
        return f"{MARKER} is damaged: files: {min(lacking)}: missing"
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if _Fingerprint.of(file) != expected:
            return f"{name} is damaged: size or sha256 differ from {MARKER}"
    return None


def _load(path: Path) -> Checkpoint:
    facts = read_record(path / "facts.json", _Facts, schema=SCHEMA)
    counts = read_json(path / "usage.json")
    bits = np.load(path / "puzzles_seen.npy")
    counts["puzzles_seen"] = np.unpackbits(bits, count=counts["puzzles_seen"]).astype(np.bool_)
    return Checkpoint(
        state=TrainingState(
            model=load_file(path / "model.safetensors"),
            optimizer=torch.load(path / "optimizer.pt", weights_only=True),
            random=torch.load(path / "random.pt", weights_only=True),
        ),
        usage=Usage(**counts),
        data_digest=facts.data_digest,
        config=read_json(path / "config.json"),
    )


def _prune(folder: Path, *, newest: Path) -> None:
    """Remove checkpoints that are incomplete, ahead of the newest, or more than `NUM_KEPT` old."""
    finished = [path for path in sorted(folder.glob("step-*")) if (path / MARKER).is_file()]
    kept = [path for path in finished if path <= newest][-NUM_KEPT:]
    for path in sorted(folder.glob("step-*")):
        if path not in kept:
            # Marker first, so that a kill during removal leaves an invalid checkpoint.
            (path / MARKER).unlink(missing_ok=True)
            remove_superseded(path)
    for leftover in folder.glob(".step-*"):  # left by a session killed during a save
        remove_superseded(leftover)
