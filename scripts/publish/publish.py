"""Publication steps of models and data sets: prepare, check, show, keep, upload."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rich.console import Console

from data.runtime.digests import DIGESTS_FILE
from data.runtime.files import (
    check_replaceable,
    publish_directory,
    remove_leftovers,
    resolve_output,
    temporary_directory,
)
from data.runtime.tables import print_table
from scripts.publish.checks import CARD_FILE, check_repo
from scripts.publish.prepare import PreparedFile, write_sums

RepoType = Literal["model", "dataset"]
REFUSED = 1
_STALE = ("*.parquet", "*.safetensors")
"""Patterns of files of earlier uploads to delete: the files of a split are selected by a pattern,
and their number may have changed."""

logger = logging.getLogger(__name__)


class Hub(Protocol):
    """Interface of `huggingface_hub.HfApi` that is used here."""

    def create_repo(
        self, repo_id: str, *, repo_type: str, private: bool | None, exist_ok: bool
    ) -> object:
        """Create a repository."""

    def upload_folder(
        self,
        *,
        repo_id: str,
        repo_type: str,
        folder_path: Path,
        commit_message: str,
        delete_patterns: list[str],
    ) -> object:
        """Upload all files of a folder in one commit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """Repository and options of an upload."""

    repo: str
    """Repository on the hub, owner/name; created if it does not exist."""
    license: str | None = None
    """License for the card, as an id of the hub: mit, apache-2.0, ..., unknown."""
    out: Path | None = None
    """Keep the prepared folder at this path."""
    rebuild: bool = False
    """Replace that folder if it exists."""
    dry_run: bool = False
    """Prepare, check and show the folder without uploading it."""
    private: bool = False
    """Create a private repository."""

    def __post_init__(self) -> None:
        check_repo(self.repo)
        if self.out is not None and self.out.exists() and not self.rebuild:
            remove_leftovers(self.out)
            raise ValueError(f"out: {self.out} exists, allowed with --rebuild only")


def publish(
    destination: Destination,
    *,
    repo_type: RepoType,
    prepare: Callable[[Path], None],
    find_problems: Callable[[Path], list[str]],
) -> int:
    """Prepare a folder, check it, and upload it if there are no problems.

    Args:
        destination: Repository and options.
        repo_type: Kind of repository.
        prepare: Writes the folder to a new path.
        find_problems: Checks the folder; returns a line per problem.

    Returns:
        Exit code: 0, or 1 if there are problems or no token.

    Raises:
        FileExistsError: `destination.out` exists and was not written by this function.
        OSError: the hub cannot be reached, or returns an error.
    """
    out = None if destination.out is None else resolve_output(destination.out)
    if out is not None:
        for marker in (DIGESTS_FILE, CARD_FILE):  # data sets and evaluations have one of them
            check_replaceable(out, marker=marker)
    final = out or Path(tempfile.gettempdir(), "sudocot-publish").absolute()
    with temporary_directory(final) as work:
        folder = work / "folder"
        prepare(folder)
        files = write_sums(folder)
        problems = find_problems(folder)
        for problem in problems:
            sys.stderr.write(f"sudocot: refused: {problem}\n")
        if problems:
            return REFUSED
        _show(files, destination)
        if out is not None:
            publish_directory(folder, out, replace=destination.rebuild)
            folder = out
        return 0 if destination.dry_run else _upload(folder, destination, repo_type)


def upload(hub: Hub, folder: Path, *, repo: str, repo_type: RepoType, private: bool) -> None:
    """Upload a prepared folder in one commit, deleting the data of earlier uploads."""
    hub.create_repo(repo, repo_type=repo_type, private=private or None, exist_ok=True)
    hub.upload_folder(
        repo_id=repo,
        repo_type=repo_type,
        folder_path=folder,
        commit_message="Upload by sudocot",
        delete_patterns=list(_STALE),
    )


def _upload(folder: Path, destination: Destination, repo_type: RepoType) -> int:
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    # The hub's client uses httpx or httpx2, depending on its version. Connection errors of these
    # are not OSErrors.
    http_error: type[Exception] = HfHubHTTPError.__bases__[0]
    repo = destination.repo
    if get_token() is None:
        logger.error("not uploaded: no token; run `hf auth login` or set HF_TOKEN")
        return REFUSED
    try:
        upload(HfApi(), folder, repo=repo, repo_type=repo_type, private=destination.private)
    except http_error as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"the hub cannot be reached: {error}") from error
    logger.info("uploaded to https://huggingface.co/%s%s", _prefix(repo_type), repo)
    return 0


def _prefix(repo_type: RepoType) -> str:
    return "datasets/" if repo_type == "dataset" else ""


def _show(files: Sequence[PreparedFile], destination: Destination) -> None:
    rows = [(file.name, f"{file.num_bytes:,}", file.sha256[:16]) for file in files]
    rows.append(("all", f"{sum(file.num_bytes for file in files):,}", ""))
    verb = "would be uploaded" if destination.dry_run else "to upload"
    title = f"files {verb} to {destination.repo}"
    print_table(Console(markup=False), title, ("file", "bytes", "sha256"), rows)
