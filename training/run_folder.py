"""Layout of a run folder, and the checks before a command starts or resumes a run in it.

config.json      resolved config and data digest
metrics.jsonl    metrics (training.reporting.metrics)
checkpoints/     the newest two (training.checkpoints.checkpoint)
final/           model folder, once training is finished (training.checkpoints.export)
.lock            lock of the command that is training
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.runtime.files import publish_file, to_json
from data.runtime.schema import read_record
from training.config import TrainConfig, differing_fields
from training.reporting.metrics import METRICS_FILE

SCHEMA = 1
CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Content of `config.json`."""

    config: dict[str, Any]
    """`TrainConfig` as JSON values."""
    data_digest: str
    """Digest of the data set."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"schema": SCHEMA, "config": self.config, "data_digest": self.data_digest}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run."""

    path: Path
    """Run folder."""

    @property
    def metrics(self) -> Path:
        """Metrics file."""
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
        """Whether the run is finished; the final folder is published atomically."""
        return self.final.is_dir()

    def check(self, config: TrainConfig, *, data_digest: str, has_checkpoint: bool = False) -> None:
        """Check that a config may start or resume a run in this folder.

        Args:
            config: Requested config.
            data_digest: Digest of the data set.
            has_checkpoint: There is a checkpoint, whose config is checked against budget and
                schedule instead (`training.run_checks.check_checkpoint`).

        Raises:
            ValueError: The folder holds other files, or a run with another data set or with other
                values of fields that may not change on resume; all of them are named.
        """
        file = self.path / CONFIG_FILE
        if not file.exists():
            # Leftovers of a session killed before its config was published are hidden files.
            if self.path.exists() and any(self.path.glob("[!.]*")):
                raise ValueError(f"out: {self.path} contains files but no {CONFIG_FILE}")
            return
        record = read_run_config(self.path)
        differences = differing_fields(
            record.config, config.as_dict(), ignores_schedule=has_checkpoint
        )
        if record.data_digest != data_digest:
            differences.append(f"data: the run has digest {record.data_digest}, got {data_digest}")
        if differences:
            raise ValueError(
                f"out: {self.path} contains a run that differs in {'; '.join(differences)}. "
                "Give the same options to resume it, or another folder"
            )

    def prepare(self, config: TrainConfig, *, data_digest: str) -> None:
        """Publish the config, which marks the folder as a run, and create the subfolders."""
        record = RunConfig(config=config.as_dict(), data_digest=data_digest)
        publish_file(self.path / CONFIG_FILE, to_json(record.to_json()))
        self.checkpoints.mkdir(exist_ok=True)


def has_progress(path: Path) -> bool:
    """Return whether a run folder has a checkpoint or a trained model."""
    folder = RunFolder(path)
    return folder.is_finished or any(folder.checkpoints.glob("step-*"))


def read_run_config(path: Path) -> RunConfig:
    """Read `config.json` of a run folder.

    Raises:
        ValueError: It is damaged or has another schema.
        OSError: It does not exist.
    """
    return read_record(path / CONFIG_FILE, RunConfig, schema=SCHEMA)
