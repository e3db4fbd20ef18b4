"""CoT length table: solver measurements of every row of a puzzle list, in a Parquet file.

    row               row of the list, counted from 0, including malformed rows
    puzzle_id         `solver.puzzles.puzzle_id`
    status            name of a `RowStatus`, lower case
    cot_length        tokens of the CoT
    lower_bound       lower bound on the tokens of the CoT, if capped
    num_segments      segments of the SCoT
    scot_tokens       tokens of all segments
    scot_loss_tokens  loss tokens among these
    num_assignments   number of assignments of the search, including retries
    num_givens        givens of the puzzle
    rating, source    as stated by the list
    is_duplicate      whether the puzzle occurs in an earlier row

Unknown values are null: a capped puzzle has a lower bound but no length.
"""

from __future__ import annotations

import hashlib
import json
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data.runtime.digests import stream_digest
from solver.boards import Board, get_board

SCHEMA_VERSION = 1
IDENTITY_KEY = b"sudocot"
"""Metadata key of the identity of the table (source and configuration), in JSON."""
DIGEST_KEY = b"sudocot_sha256"
"""Metadata key of the digest of rows and identity."""
_FOOTER_END_BYTES = 8
"""Size of the footer length and the magic number."""

SCHEMA = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("puzzle_id", pa.uint64()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("cot_length", pa.uint32()),
        pa.field("lower_bound", pa.uint32()),
        pa.field("num_segments", pa.uint32()),
        pa.field("scot_tokens", pa.uint64()),
        pa.field("scot_loss_tokens", pa.uint64()),
        pa.field("num_assignments", pa.uint32()),
        pa.field("num_givens", pa.uint16()),
        pa.field("rating", pa.float64()),
        pa.field("source", pa.string()),
        pa.field("is_duplicate", pa.bool_(), nullable=False),
    ]
)


class RowStatus(IntEnum):
    """Outcome of a row."""

    OK = 0
    """Solved; unique if uniqueness was checked."""
    MALFORMED = 1
    """Not a puzzle of the board."""
    CONFLICT = 2
    """Two equal givens in a unit."""
    UNSOLVABLE = 3
    """No solution."""
    CAPPED = 4
    """Not solved within the token limit."""
    AMBIGUOUS = 5
    """Solved, with other solutions."""
    UNDECIDED = 6
    """Solved; uniqueness was not decided within the node limit."""
    WRONG_ANSWER = 7
    """Solved, but the stated answer is not a solution."""

    @property
    def label(self) -> str:
        """Name in the table."""
        return self.name.lower()


def content_digest(rows_digest: str, identity: bytes) -> dict[bytes, bytes]:
    """Return the metadata entry with the digest of a table.

    Args:
        rows_digest: Hex SHA-256 of all bytes before the footer of the file.
        identity: Identity of the table, as in the file metadata.
    """
    return {DIGEST_KEY: hashlib.sha256(rows_digest.encode() + identity).hexdigest().encode()}


def _check_content(path: Path, entries: dict[bytes, bytes], *, footer_bytes: int) -> None:
    """Check the digest of a table.

    Raises:
        ValueError: It is missing or does not match.
    """
    size = path.stat().st_size - footer_bytes - _FOOTER_END_BYTES
    with path.open("rb") as file:
        rows_digest = stream_digest(file, size=max(0, size))
    expected = content_digest(rows_digest, entries[IDENTITY_KEY])[DIGEST_KEY]
    if entries.get(DIGEST_KEY) != expected:
        raise ValueError(
            f"{path}: content does not match its digest, so it was edited or damaged; "
            "`sudocot data lengths --rebuild` rebuilds it"
        )


class LengthsTable:
    """A finished CoT length table with lazily loaded columns.

    All arrays have shape (n,); null in the file is 0 here, NaN for ratings.
    """

    def __init__(self, path: Path, identity: dict[str, Any], *, num_rows: int) -> None:
        self.path = path
        self.identity = identity
        """Identity of the table: `board`, `trace_rule`, `source`, `config`."""
        self._num_rows = num_rows

    @classmethod
    def open(cls, path: str | Path) -> LengthsTable:
        """Open a table.

        Raises:
            OSError: It cannot be read.
            ValueError: Not a CoT length table, another version, or a digest mismatch.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                metadata = pq.read_metadata(file)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path}: not a CoT length table ({error})") from None
        entries = metadata.metadata or {}
        try:
            identity = json.loads(entries.get(IDENTITY_KEY, b"{}"))
        except ValueError:
            identity = {}
        version = identity.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{path}: not a CoT length table of version {SCHEMA_VERSION} (got {version}); "
                "`sudocot data lengths` makes one"
            )
        _check_content(path, entries, footer_bytes=metadata.serialized_size)
        return cls(path, identity, num_rows=metadata.num_rows)

    def __len__(self) -> int:
        return self._num_rows

    @property
    def board(self) -> Board:
        """Board of the puzzles."""
        return get_board(self.identity["board"])

    @property
    def segment_tokens(self) -> int:
        """Minimum trace tokens before a summary."""
        return int(self.identity["config"]["segment_tokens"])

    @property
    def max_tokens(self) -> int:
        """Token limit of the measurement."""
        return int(self.identity["config"]["max_tokens"])

    @cached_property
    def is_usable(self) -> npt.NDArray[np.bool_]:
        """Mask of rows with status OK that are not duplicates."""
        usable: npt.NDArray[np.bool_] = (self.statuses == RowStatus.OK) & ~self.is_duplicate
        return usable

    @cached_property
    def statuses(self) -> npt.NDArray[np.uint8]:
        """`RowStatus` of each row."""
        column = pq.read_table(self.path, columns=["status"], read_dictionary=["status"])[0]
        codes = [np.empty(0, dtype=np.uint8)]
        for chunk in column.chunks:
            names = [RowStatus[name.upper()] for name in chunk.dictionary.to_pylist()]
            codes.append(np.array(names, dtype=np.uint8)[chunk.indices.to_numpy()])
        return np.concatenate(codes)

    @cached_property
    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Id of each puzzle."""
        return self._column("puzzle_id")

    @cached_property
    def cot_lengths(self) -> npt.NDArray[np.uint32]:
        """Tokens of each CoT; 0 if unknown."""
        return self._column("cot_length")

    @cached_property
    def lower_bounds(self) -> npt.NDArray[np.uint32]:
        """Lower bound on the tokens of each CAPPED CoT."""
        return self._column("lower_bound")

    @cached_property
    def num_segments(self) -> npt.NDArray[np.uint32]:
        """Segments of each SCoT."""
        return self._column("num_segments")

    @cached_property
    def scot_tokens(self) -> npt.NDArray[np.uint64]:
        """Tokens of all segments of each SCoT."""
        return self._column("scot_tokens")

    @cached_property
    def scot_loss_tokens(self) -> npt.NDArray[np.uint64]:
        """Loss tokens of all segments of each SCoT."""
        return self._column("scot_loss_tokens")

    @cached_property
    def num_assignments(self) -> npt.NDArray[np.uint32]:
        """Number of assignments of each search."""
        return self._column("num_assignments")

    @cached_property
    def num_givens(self) -> npt.NDArray[np.uint16]:
        """Givens of each puzzle."""
        return self._column("num_givens")

    @cached_property
    def ratings(self) -> npt.NDArray[np.float64]:
        """Stated rating of each puzzle."""
        return self._column("rating", missing=np.nan)

    @cached_property
    def is_duplicate(self) -> npt.NDArray[np.bool_]:
        """Whether each puzzle occurs in an earlier row."""
        return self._column("is_duplicate")

    def _column(self, name: str, *, missing: Any = 0) -> npt.NDArray[Any]:
        column = pq.read_table(self.path, columns=[name])[0]
        filled = column.fill_null(missing) if column.null_count else column
        values: npt.NDArray[Any] = filled.to_numpy()
        return values
