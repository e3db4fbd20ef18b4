"""What training and evaluation share of Weights & Biases: where and how runs are written.

W&B goes offline where there is no key or no network, so that nothing on a closed cluster waits for
a login or a time-out. W&B itself is imported only by what writes to it.
"""

from __future__ import annotations

import logging
import netrc
import os
import re
import socket
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

DEFAULT_URL = "https://api.wandb.ai"
CONNECT_TIMEOUT_S = 3.0
LONGEST_NAME = 128
LARGEST_COPY = 1 << 20
"""Bytes of a file up to which an artifact holds it; of a larger one it has the address."""

logger = logging.getLogger(__name__)


def check_project(name: str) -> None:
    """Check the name of a W&B project as W&B does, before anything is computed.

    Raises:
        ValueError: it is empty, too long, or has a character that W&B refuses.
    """
    if not re.fullmatch(rf"[^/\\\\#?%:\x00-\x1f]{{1,{LONGEST_NAME}}}", name):
        raise ValueError(
            f"project: got {name!r}, allowed are 1 to {LONGEST_NAME} characters without /\\#?%:"
        )


def log_folder(run: Any, folder: Path, *, kind: str, metadata: Mapping[str, Any]) -> None:
    """Record a folder as an artifact: its small files, and references to the large ones.

    Args:
        run: The W&B run.
        folder: Folder whose files do not change any more.
        kind: Type of the artifact: `model`, `dataset`, `evaluation`.
        metadata: Facts that identify the content, digests among them.
    """
    import wandb

    folder = folder.resolve()
    owner = folder.parent if folder.name == "final" else folder
    # W&B takes 128 characters; names of runs begin alike and differ at the end.
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", owner.name)[-(LONGEST_NAME - len(kind) - 1) :]
    name = f"{stem}-{kind}"
    artifact = wandb.Artifact(name, type=kind, metadata=dict(metadata))
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        inside = path.relative_to(folder).as_posix()
        if path.stat().st_size <= LARGEST_COPY:
            artifact.add_file(str(path), name=inside, policy="immutable")
        else:
            # Not read again to hash it: the metadata have the digest of what is in the folder.
            artifact.add_reference(path.as_uri(), name=inside, checksum=False)
    run.log_artifact(artifact)


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
    # A path that is given is read whatever its permissions are, as W&B reads it.
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc").expanduser()
    try:
        return netrc.netrc(path).authenticators(urlsplit(url).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _can_connect(url: str) -> bool:
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}", scheme="http")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
