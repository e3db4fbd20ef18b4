"""Weights & Biases utilities shared by training and evaluation.

W&B runs offline without an API key or a network, so that commands on an isolated cluster wait
neither for a login nor for a timeout. wandb is imported lazily.
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

from data.model_format.facts import model_name

DEFAULT_URL = "https://api.wandb.ai"
CONNECT_TIMEOUT_S = 3.0
LONGEST_NAME = 128
LARGEST_COPY = 1 << 20
"""Maximum size in bytes of a file that is copied to an artifact; larger ones are referenced."""

logger = logging.getLogger(__name__)


def check_project(name: str) -> None:
    """Check the name of a W&B project, with the rules of W&B.

    Raises:
        ValueError: It is empty, too long, or has a character that W&B rejects.
    """
    if not re.fullmatch(rf"[^/\\\\#?%:\x00-\x1f]{{1,{LONGEST_NAME}}}", name):
        raise ValueError(
            f"project: got {name!r}, allowed are 1 to {LONGEST_NAME} characters without /\\#?%:"
        )


def log_folder(run: Any, folder: Path, *, kind: str, metadata: Mapping[str, Any]) -> None:
    """Log a folder as an artifact: its small files, and references to the large ones.

    Args:
        run: W&B run.
        folder: Folder with final content.
        kind: Type of the artifact: `model`, `dataset`, `evaluation`.
        metadata: Facts that identify the content, including digests.
    """
    import wandb

    folder = folder.resolve()
    # W&B allows 128 characters; the end of a run's name is the most specific part.
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model_name(folder))[-(LONGEST_NAME - len(kind) - 1) :]
    name = f"{stem}-{kind}"
    artifact = wandb.Artifact(name, type=kind, metadata=dict(metadata))
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        inside = path.relative_to(folder).as_posix()
        if path.stat().st_size <= LARGEST_COPY:
            artifact.add_file(str(path), name=inside, policy="immutable")
        else:
            # Without a checksum, since the metadata include the digest of the content.
            artifact.add_reference(path.as_uri(), name=inside, checksum=False)
    run.log_artifact(artifact)


def choose_folder(run_folder: Path) -> Path:
    """Return the folder of the local files of W&B: `WANDB_DIR` if set, else the run folder."""
    return Path(os.environ.get("WANDB_DIR", run_folder))


def choose_mode() -> Literal["online", "offline"] | None:
    """Return the W&B mode: online if possible, else offline; None if `WANDB_MODE` is set."""
    if os.environ.get("WANDB_MODE"):
        return None
    url = os.environ.get("WANDB_BASE_URL", DEFAULT_URL)
    if not _has_key(url):
        logger.info("W&B runs offline: no API key")
        return "offline"
    if not _can_connect(url):
        logger.info("W&B runs offline: %s cannot be reached", url)
        return "offline"
    return "online"


def _has_key(url: str) -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    # An explicit path skips the permission check of netrc, as in W&B.
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
