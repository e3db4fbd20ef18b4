"""The steps that both kinds of repositories share: prepare, check, show, keep, upload."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rich.console import Console

from data.commands.tables import print_table
from data.runtime.files import check_replaceable, publish_directory, temporary_directory
from scripts.publish.checks import SUMS_FILE, check_repo
from scripts.publish.prepare import PreparedFile, write_sums

RepoType = Literal["model", "dataset"]
REFUSED = 1
_STALE = ("*.parquet", "*.safetensors")
"""Files of an earlier upload that must not stay beside those of this one: data of a split is all
that fits a pattern, and it may be divided into another number of files now."""

logger = logging.getLogger(__name__)


class Hub(Protocol):
    """The part of `huggingface_hub.HfApi` that is used."""

    def create_repo(
        self, repo_id: str, *, repo_type: str, private: bool | None, exist_ok: bool
    ) -> object:
        """Make a repository."""

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
    """Where a folder goes, and on which terms."""

    repo: str
    """Repository on the hub, owner/name; it is made if there is none."""
    license: str | None = None
    """Licence for the card, as the hub names it: mit, apache-2.0, ..., unknown."""
    out: Path | None = None
    """Keep the prepared folder here."""
    rebuild: bool = False
    """Replace that folder if it exists."""
    dry_run: bool = False
    """Prepare, check and show, and upload nothing."""
    private: bool = False
    """Make a private repository."""

    def __post_init__(self) -> None:
        check_repo(self.repo)
        if self.out is not None and self.out.exists() and not self.rebuild:
            raise ValueError(f"out: {self.out} exists, allowed with --rebuild only")


def publish(
    destination: Destination,
    *,
    repo_type: RepoType,
    prepare: Callable[[Path], None],
    find_problems: Callable[[Path], list[str]],
) -> int:
    """Prepare a folder, and upload it if nothing speaks against it.

    Args:
        destination: Where to.
        repo_type: Kind of repository.
        prepare: Makes the folder, whose path does not exist yet.
        find_problems: Checks it; returns a line for each problem.

    Returns:
        Exit code: 0, or 1 if it was refused or there is no token.

    Raises:
        FileExistsError: the folder to keep is there and holds something else.
        OSError: the hub cannot be reached, or refuses.
    """
    if destination.out is not None:
        check_replaceable(destination.out, marker=SUMS_FILE)
    final = destination.out or Path(tempfile.gettempdir(), "sudocot-publish")
    with temporary_directory(final.absolute()) as work:
        folder = work / "folder"
        prepare(folder)
        files = write_sums(folder)
        problems = find_problems(folder)
        for problem in problems:
            sys.stderr.write(f"sudocot: refused: {problem}\n")
        if problems:
            return REFUSED
        _show(files, destination)
        if destination.out is not None:
            publish_directory(folder, destination.out, replace=destination.rebuild)
            folder = destination.out
        return 0 if destination.dry_run else _upload(folder, destination, repo_type)


def upload(hub: Hub, folder: Path, *, repo: str, repo_type: RepoType, private: bool) -> None:
    """Upload a prepared folder in one commit, and remove data of earlier ones."""
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

    # The HTTP library is httpx or httpx2, by the version of the hub's client. Its errors are no
    # OSErrors where the hub did not answer.
    http_error: type[Exception] = HfHubHTTPError.__bases__[0]
    repo = destination.repo
    if get_token() is None:
        logger.error("not uploaded: there is no token; `hf auth login` or HF_TOKEN gives one")
        return REFUSED
    try:
        upload(HfApi(), folder, repo=repo, repo_type=repo_type, private=destination.private)
    except http_error as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(f"the hub does not answer: {error}") from error
    logger.info("uploaded to https://huggingface.co/%s%s", _prefix(repo_type), repo)
    return 0


def _prefix(repo_type: RepoType) -> str:
    return "datasets/" if repo_type == "dataset" else ""


def _show(files: Sequence[PreparedFile], destination: Destination) -> None:
    rows = [(file.name, f"{file.num_bytes:,}", file.sha256[:16]) for file in files]
    rows.append(("all", f"{sum(file.num_bytes for file in files):,}", ""))
    verb = "would go" if destination.dry_run else "goes"
    title = f"what {verb} to {destination.repo}"
    print_table(Console(markup=False), title, ("file", "bytes", "sha256"), rows)
