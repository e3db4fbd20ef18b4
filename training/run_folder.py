"""The folder of a run: what is in it, and whether a command may go on with it.

config.json      resolved config and data digest
metrics.jsonl    the record (training.reporting.metrics)
checkpoints/     the newest two (training.checkpoints.checkpoint)
final/           the model folder, once training is done (training.checkpoints.export)
.lock            keeps a second command out while one trains
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.runtime.files import publish_file, to_json
from data.runtime.locks import locked_folder
from data.runtime.schema import read_record
from training.config import TrainConfig, differing_fields
from training.reporting.metrics import METRICS_FILE

SCHEMA = 1
CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Content of `config.json`."""

    config: dict[str, Any]
    """Plain form of the `TrainConfig`."""
    data_digest: str
    """Digest of the data set."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"schema": SCHEMA, "config": self.config, "data_digest": self.data_digest}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run."""

    path: Path
    """The folder itself."""

    @property
    def metrics(self) -> Path:
        """The record of the run."""
        return self.path / METRICS_FILE

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        """Folder of the trained model."""
        return self.path / "final"

    @property
    def is_finished(self) -> bool:
        """Whether the run is done: the final folder appears whole or not at all."""
        return self.final.is_dir()

    def check(self, config: TrainConfig, *, data_digest: str) -> None:
        """Check that a config may start or resume a run here.

        Raises:
            ValueError: If the folder holds something else, or a run with another data set or with
                another value of a field that matters; all such fields are named.
        """
        file = self.path / CONFIG_FILE
        if not file.exists():
            # What a killed session left before its config was whole is hidden.
            if self.path.exists() and any(self.path.glob("[!.]*")):
                raise ValueError(f"out: {self.path} holds other files and no {CONFIG_FILE}")
            return
        record = read_run_config(self.path)
        differences = differing_fields(record.config, config.as_dict())
        if record.data_digest != data_digest:
            differences.append(f"data: the run has digest {record.data_digest}, got {data_digest}")
        if differences:
            raise ValueError(
                f"out: {self.path} holds a run that differs in {'; '.join(differences)}. "
                "Give the same options to resume it, or another folder"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands out; make the folder if need be.

        Raises:
            ValueError: If another command trains here.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with locked_folder(self.path):
            yield

    def prepare(self, config: TrainConfig, *, data_digest: str) -> None:
        """Write down the config, which makes the folder a run, then create the rest."""
        record = RunConfig(config=config.as_dict(), data_digest=data_digest)
        publish_file(self.path / CONFIG_FILE, to_json(record.to_json()))
        self.checkpoints.mkdir(exist_ok=True)


def read_run_config(path: Path) -> RunConfig:
    """Read the config record of a run folder.

    Raises:
        ValueError: If it is damaged, or has another schema.
        OSError: If there is none.
    """
    return read_record(path / CONFIG_FILE, RunConfig, schema=SCHEMA)
