"""The mirror of the metrics in Weights & Biases: off unless asked for, and never fatal.

The tracker is accelerate's, on the first process only. W&B goes offline where there is no key or
no network, so a run on a closed cluster neither waits for a login nor for a time-out; the offline
files can be uploaded later with `wandb sync`, or the whole run rebuilt with
`sudocot train wandb-sync`. A resumed run begins a new W&B run: W&B refuses steps that go back.
"""

from __future__ import annotations

import logging
import netrc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from accelerate import Accelerator

from training.metrics import Row

DEFAULT_URL = "https://api.wandb.ai"
CONNECT_TIMEOUT_S = 3.0
MIRRORED_KINDS = ("train", "eval")
"""Kinds of rows that have a curve; the others tell of sessions."""

logger = logging.getLogger(__name__)


class WandbMirror:
    """Copies rows to W&B; after its first failure it says so and stays silent."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._is_working = accelerator.is_main_process

    def start(self, *, project: str, name: str, folder: Path, config: dict[str, Any]) -> None:
        """Begin a W&B run, whose files go to `folder`."""
        options = {"name": name, "dir": choose_folder(folder), "mode": choose_mode()}
        self._attempt(lambda: self._accelerator.init_trackers(project, config, {"wandb": options}))

    def log(self, row: Row) -> None:
        """Copy a row of the metrics."""
        if row["kind"] in MIRRORED_KINDS:
            step, values = row_values(row)
            self._attempt(lambda: self._accelerator.log(values, step=step))

    def finish(self) -> None:
        """Wait for W&B to write what it has."""
        for tracker in self._accelerator.trackers:
            self._attempt(tracker.finish)
        self._accelerator.trackers = []

    def _attempt(self, action: Callable[[], None]) -> None:
        if not self._is_working:
            return
        try:
            action()
        except Exception as error:  # a mirror must not end the run, whatever fails in it
            self._is_working = False
            self._accelerator.trackers = []
            logger.warning("W&B failed, the run goes on without it: %s", error)


def row_values(row: Row) -> tuple[int, dict[str, float]]:
    """Step of a metrics row and its numbers, named by the kind of row: `train/loss`."""
    step, kind = row["step"], row["kind"]
    assert isinstance(step, int)
    numbers = {
        f"{kind}/{name}": value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in ("schema", "step")
    }
    return step, numbers


def choose_folder(run_folder: Path) -> Path:
    """Folder of W&B's own files: the run folder, unless `WANDB_DIR` names another."""
    return Path(os.environ.get("WANDB_DIR", run_folder))


def choose_mode() -> Literal["online", "offline"] | None:
    """W&B mode: online where that can work, else offline; None lets `WANDB_MODE` decide."""
    if os.environ.get("WANDB_MODE"):
        return None
    url = os.environ.get("WANDB_BASE_URL", DEFAULT_URL)
    if not _has_key(url):
        logger.info("W&B runs offline: there is no key")
        return "offline"
    if not _can_connect(url):
        logger.info("W&B runs offline: %s cannot be reached", url)
        return "offline"
    return "online"


def _has_key(url: str) -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(urlsplit(url).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _can_connect(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
