"""Sources of puzzles for builds: files, a data set on the hub, or the generator."""

from __future__ import annotations

import atexit
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from data.runtime.digests import file_digest
from data.runtime.parallel import map_in_order
from solver.boards import Board, get_board
from solver.generation.generator import Puzzles, generate_puzzles
from solver.generation.mining import MinedPuzzles, mine_puzzles
from solver.puzzles import NO_COLUMN_NAMES, ColumnNames, PuzzleBlock, read_puzzles

logger = logging.getLogger(__name__)

_GENERATED_BLOCK, _MINED_BLOCK = 256, 4
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class Source(Protocol):
    """A source of puzzles."""

    @property
    def board(self) -> Board:
        """Board of all puzzles."""

    def describe(self) -> dict[str, Any]:
        """Return the description for the manifest; equal descriptions imply equal puzzles."""

    def blocks(self) -> Iterator[PuzzleBlock]:
        """Yield the puzzles in a deterministic order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """One or more files, read one after another."""

    paths: tuple[Path, ...]
    """Files in any format supported by `solver.puzzles`."""
    board: Board
    """Board of all puzzles."""
    origin: dict[str, Any]
    """Data set, split and revision of the files, if any."""
    columns: ColumnNames = NO_COLUMN_NAMES
    """Explicitly named columns of tables."""

    def describe(self) -> dict[str, Any]:
        """Return names, without folders, and SHA-256 of the files."""
        files = [{"name": path.name, "sha256": file_digest(path)} for path in self.paths]
        named = {} if self.columns == NO_COLUMN_NAMES else {"columns": asdict(self.columns)}
        return {"kind": "files", **self.origin, **named, "files": files}

    def blocks(self) -> Iterator[PuzzleBlock]:
        """Yield the puzzles."""
        for path in self.paths:
            yield from read_puzzles(path, board=self.board, columns=self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSource:
    """Generated or mined puzzles."""

    board: Board
    """Board of the puzzles."""
    count: int
    """Number of puzzles."""
    seed: int
    """Seed; puzzle k depends only on the seed and k."""
    extra_givens: int
    """Givens added to each minimal puzzle."""
    cot_lengths: tuple[int, int] | None
    """Minimum and maximum CoT length to mine for; None for no mining. Puzzles that miss these
    lengths are kept, so that there are always `count` puzzles."""
    workers: int
    """Number of threads."""

    def describe(self) -> dict[str, Any]:
        """Return the arguments of the generator."""
        return {
            "kind": "generator",
            "count": self.count,
            "seed": self.seed,
            "extra_givens": self.extra_givens,
            "cot_lengths": None if self.cot_lengths is None else list(self.cot_lengths),
        }

    def blocks(self) -> Iterator[PuzzleBlock]:
        """Generate the puzzles, several blocks in parallel."""
        size = _GENERATED_BLOCK if self.cot_lengths is None else _MINED_BLOCK
        starts = range(0, self.count, size)
        yield from map_in_order(partial(self._make_block, size), starts, workers=self.workers)

    def _make_block(self, size: int, start: int) -> PuzzleBlock:
        count = min(size, self.count - start)
        puzzles: Puzzles | MinedPuzzles
        if self.cot_lengths is None:
            puzzles = generate_puzzles(
                self.board, seed=self.seed, start=start, count=count, extra_givens=self.extra_givens
            )
        else:
            least, greatest = self.cot_lengths
            puzzles = mine_puzzles(
                self.board,
                seed=self.seed,
                start=start,
                count=count,
                min_cot_length=least,
                max_cot_length=greatest,
            )
        return PuzzleBlock(
            file="generator",
            lines=np.arange(start + 1, start + count + 1),
            grids=puzzles.grids,
            rows=np.arange(start, start + count),
            answers=puzzles.solutions,
            ratings=np.full(count, np.nan),
            sources=None,
            errors=(),
        )


def open_files(
    names: tuple[str, ...],
    *,
    board: str | None,
    split: str | None,
    revision: str | None,
    columns: ColumnNames = NO_COLUMN_NAMES,
) -> FileSource:
    """Open puzzle files, or a data set on the hub, and infer the board.

    Args:
        names: Files, pipes or `-` for standard input; or one folder with `<split>.csv`; or the
            name of a data set on the hub, `owner/name`, whose file `<split>.csv` is downloaded to
            the cache of the hub.
        board: Name of the board, or None to infer it from the puzzles.
        split: Split of a folder or a hub data set.
        revision: Revision of a hub data set.
        columns: Columns of tables to read instead of those with known names.

    Raises:
        OSError: A file cannot be read, or the hub cannot be reached.
        ValueError: No puzzles, files of different boards, or a split or revision that does not
            apply.
    """
    origin: dict[str, Any] = {}
    if len(names) == 1 and not Path(names[0]).exists() and _HUB_NAME.fullmatch(names[0]):
        paths: tuple[Path, ...] = (_fetch(names[0], split=split, revision=revision),)
        origin = {"dataset": names[0], "split": split, "revision": revision}
    elif len(names) == 1 and Path(names[0]).is_dir():
        paths = (Path(read_puzzles(names[0], split=split, columns=columns).file),)
        origin = {"dataset": Path(names[0]).resolve().name, "split": split}
    else:
        if split is not None:
            raise ValueError(f"split: got {split!r}, allowed for a folder or a hub data set only")
        paths = tuple(Path(name) for name in names)
        if any(_is_pipe(path) for path in paths):
            folder = Path(tempfile.mkdtemp(prefix="sudocot-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            paths = tuple(_copy_pipe(path, folder, k) for k, path in enumerate(paths))
    if revision is not None and "revision" not in origin:
        raise ValueError(f"revision: got {revision!r}, allowed for a hub data set only")
    wanted = None if board is None else get_board(board)
    boards = {path: read_puzzles(path, board=wanted, columns=columns).board for path in paths}
    if len(set(boards.values())) > 1:
        found = ", ".join(f"{path} {found.name}" for path, found in boards.items())
        raise ValueError(f"sources: boards differ ({found}); allowed is one board")
    return FileSource(paths=paths, board=boards[paths[0]], origin=origin, columns=columns)


def _is_pipe(path: Path) -> bool:
    """Whether a file can be read only once: a pipe, a device or standard input."""
    return str(path) == "-" or path.is_fifo() or path.is_char_device() or path.is_socket()


def _copy_pipe(path: Path, folder: Path, number: int) -> Path:
    """Copy a pipe to a file in `folder`, since sources are read several times."""
    if not _is_pipe(path):
        return path
    copy = folder / f"pipe-{number}"
    logger.info("%s: copied to %s", path, copy)
    with copy.open("wb") as file:
        if str(path) != "-":
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, file)
        elif sys.stdin is None:
            raise ValueError("-: the standard input is closed")
        else:
            shutil.copyfileobj(sys.stdin.buffer, file)
    return copy


def _fetch(name: str, *, split: str | None, revision: str | None) -> Path:
    """Download `<split>.csv` of a hub data set, or use the local cache if offline."""
    if split is None:
        raise ValueError(
            f"{name}: no such file; a data set on the hub needs a split, such as --split train"
        )
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = hf_hub_download(name, f"{split}.csv", repo_type="dataset", revision=revision)
    except LocalEntryNotFoundError:
        raise ConnectionError(
            f"{name}: neither a local file nor in the hub's cache, and the hub cannot be reached"
        ) from None
    except (EntryNotFoundError, HfHubHTTPError) as error:
        raise FileNotFoundError(f"{name}: {str(error).splitlines()[0]}") from None
    return Path(path)
