"""Reader of W&B's offline files: a leveldb log of protobuf messages."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import wandb
from wandb.proto import wandb_internal_pb2


class WrittenArtifact(NamedTuple):
    """An artifact that a run logged."""

    kind: str
    name: str
    metadata: dict[str, Any]
    entries: dict[str, str]
    """Reference, or local path, of each file."""


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Rows of the history of the one offline run in a folder."""
    rows = []
    for record in read_records(folder):
        if record.HasField("history"):
            items = record.history.item
            rows.append({_key(item): json.loads(item.value_json) for item in items})
    return rows


def read_config(folder: Path) -> dict[str, Any]:
    """Config with which the one offline run in a folder began."""
    (run,) = (record.run for record in read_records(folder) if record.HasField("run"))
    return {_key(item): json.loads(item.value_json) for item in run.config.update}


def read_summary(folder: Path) -> dict[str, Any]:
    """Last values of the summary of the one offline run in a folder."""
    values: dict[str, Any] = {}
    for record in read_records(folder):
        if record.HasField("summary"):
            values |= {_key(item): json.loads(item.value_json) for item in record.summary.update}
    return values


def read_artifacts(folder: Path) -> list[WrittenArtifact]:
    """Artifacts of the one offline run in a folder, in the order in which they were logged."""
    found = []
    for record in read_records(folder):
        request = record.request if record.HasField("request") else None
        artifact = record.artifact if record.HasField("artifact") else None
        if request is not None and request.HasField("log_artifact"):
            artifact = request.log_artifact.artifact
        if artifact is not None:
            entries = {e.path: e.ref or e.local_path for e in artifact.manifest.contents}
            metadata = json.loads(artifact.metadata or "{}")  # tables have none
            found.append(WrittenArtifact(artifact.type, artifact.name, metadata, entries))
    return found


def read_records(folder: Path) -> Iterator[Any]:
    """All messages of the one offline run in a folder."""
    wandb.teardown()  # its own process may still be writing
    (file,) = folder.rglob("*.wandb")
    for payload in _log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(payload)
        yield record


def _key(item: Any) -> str:
    """Name of a value; those inside of a table or a plot are written one by one."""
    return item.key or ".".join(item.nested_key)


def _log_records(content: bytes) -> Iterator[bytes]:
    """Records of a leveldb log: a header of 7 bytes, then chunks (crc, length, type, data)."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        if 32_768 - position % 32_768 < 7:  # rest of a block
            position += 32_768 - position % 32_768
            continue
        _crc, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last chunk of one
            yield parts
            parts = b""
