"""Checkpoints that are either whole or not there.

    checkpoints/step-000002000/
        model.safetensors    weights by name
        optimizer.pt         optimizer state by parameter name
        random.pt            random states of each process
        usage.json           counts and position in the data
        puzzles_seen.npy     one bit a puzzle
        facts.json           data digest
        config.json          the run's config
        complete.json        size and sha256 of each file; written last

A checkpoint is written to a temporary sibling, flushed to the disk and renamed. `load_newest` takes
the newest one whose files are what its marker says, and tells about each that it passes over. The
learning rate is a function of the counts, so there is no scheduler to save. No path is stored:
a run folder can be moved.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from data.model_format.weights import clear_write_errors
from data.runtime.documents import read_json
from data.runtime.files import staged_directory, to_json
from data.runtime.schema import read_record
from training.batching.usage import Usage
from training.checkpoints.state import TrainingState

SCHEMA = 1
NUM_KEPT = 2
"""Checkpoints that stay: the newest, and the one before in case the disk breaks the newest."""

MARKER = "complete.json"
_FILES = {
    *("model.safetensors", "optimizer.pt", "random.pt", "usage.json", "puzzles_seen.npy"),
    *("facts.json", "config.json"),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What a run needs to go on as if it had never stopped."""

    state: TrainingState
    """Weights, optimizer state and random states."""
    usage: Usage
    """Counts and the position in the data."""
    data_digest: str
    """Digest of the data set."""
    config: dict[str, Any]
    """The run's config in its plain form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fingerprint:
    """Size and digest of a file."""

    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path) -> _Fingerprint:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return cls(num_bytes=file.stat().st_size, sha256=digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Marker:
    """Content of `complete.json`."""

    files: dict[str, _Fingerprint]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """Content of `facts.json`."""

    data_digest: str


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, then remove those that it makes superfluous.

    Args:
        folder: The run's checkpoint folder.
        checkpoint: What to write.

    Returns:
        The checkpoint's own folder.

    Raises:
        OSError: It cannot be written; those that are there stay.
    """
    usage, state = checkpoint.usage, checkpoint.state
    path = folder / f"step-{usage.step:09d}"
    # A folder of that name was passed over as broken when this session began.
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
    """Newest complete checkpoint of a folder, or None; broken ones are named in a warning."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        fault = find_fault(path)
        if fault is None:
            return _load(path)
        logger.warning("%s is passed over: %s", path, fault)
    return None


def find_fault(path: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None if it is complete and undamaged."""
    marker = path / MARKER
    if not marker.is_file():
        return f"it has no {MARKER}, so it was never finished"
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
    """Remove all but the newest complete ones, and what lies ahead of the newest."""
    finished = [path for path in sorted(folder.glob("step-*")) if (path / MARKER).is_file()]
    kept = [path for path in finished if path <= newest][-NUM_KEPT:]
    for path in sorted(folder.glob("step-*")):
        if path not in kept:
            # Without its marker it is no checkpoint any more, should we be killed half-way.
            (path / MARKER).unlink(missing_ok=True)
            _remove(path)
    for leftover in folder.glob(".step-*"):  # of a session that was killed while it saved
        _remove(leftover)


def _remove(path: Path) -> None:
    """Remove a folder, at the next checkpoint if not now: NFS keeps files that someone reads."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        logger.warning("%s is superfluous and cannot be removed: %s", path, error)
