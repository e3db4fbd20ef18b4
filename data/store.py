"""On-disk data sets: Arrow shards readable by `datasets.load_from_disk`, and a manifest.

    manifest.json                  written last: contents, counts, shard digests
    build.json, SHA256SUMS         build configuration and its digest
    dataset_info.json, state.json  metadata for `datasets.load_from_disk`
    data-00000-of-00007.arrow ...  one row per sequence:
        input_ids       list<uint8> (uint16 on 16x16)
        prompt_length   uint16, prompt tokens, excluded from the loss
        cot_length      uint32, tokens of the puzzle's whole CoT
        puzzle_id       uint64, `solver.puzzles.puzzle_id` of the puzzle
        segment_index   uint32, 0 in CoT data

The rows of a puzzle are adjacent, in the order of their segments. Files are memory-mapped; the
tokens of a row are a view.
"""

from __future__ import annotations

import bisect
import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data.runtime.digests import find_damaged
from data.runtime.documents import read_json
from data.runtime.files import to_json
from data.runtime.schema import parse_record
from solver.boards import Board, get_board
from solver.vocabulary import Tokens, Vocabulary

SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
_HUB_TYPES = {
    "prompt_length": "uint16",
    "cot_length": "uint32",
    "puzzle_id": "uint64",
    "segment_index": "uint32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One Arrow file of a data set."""

    name: str
    """File name."""
    num_rows: int
    """Number of sequences."""
    num_tokens: int
    """Tokens of all sequences."""
    sha256: str
    """Hex SHA-256 of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of a data set; builds with equal manifests have equal bytes."""

    schema_version: int
    """Version of this layout."""
    board: str
    """Name of the board."""
    mode: str
    """`cot` or `scot`."""
    vocabulary_digest: str
    """Digest of the vocabulary."""
    trace_rule: str
    """Identifier of the trace rule."""
    segment_tokens: int | None
    """Minimum trace tokens before a summary; None for CoT."""
    max_cot_length: int | None
    """Cut-off N on the CoT length; None for no cut-off."""
    seed: int
    """Seed of sampling, order and augmentation."""
    source: dict[str, Any]
    """Description of the source, with a digest of its bytes."""
    funnel: dict[str, Any]
    """Counts of the rows read, by outcome."""
    num_rows: int
    """Number of sequences."""
    num_puzzles: int
    """Number of puzzles."""
    num_tokens: int
    """Tokens of all sequences."""
    num_loss_tokens: int
    """Loss tokens: the tokens outside prompts."""
    shards: list[Shard]
    """Files, in order."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the manifest, which identifies the data in checkpoints and results."""
        return hashlib.sha256(to_json(asdict(self))).hexdigest()

    def to_bytes(self) -> bytes:
        """Serialize for `manifest.json`."""
        return to_json({**asdict(self), "digest": self.digest})

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read `manifest.json`.

        Raises:
            ValueError: Another schema version, a missing field, or a digest mismatch.
        """
        fields = read_json(path)
        stored_digest = fields.pop("digest", None)
        if fields.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"{path}: schema_version: got {fields.get('schema_version')!r}, "
                f"allowed is {SCHEMA_VERSION}"
            )
        manifest = parse_record(cls, fields, path=path)
        if manifest.digest != stored_digest:
            raise ValueError(f"{path}: digest does not match the content, which was edited")
        return manifest


def arrow_schema(board: Board) -> pa.Schema:
    """Columns of a shard."""
    ids = pa.from_numpy_dtype(Vocabulary(board).dtype)
    numbers = [(name, getattr(pa, dtype)()) for name, dtype in _HUB_TYPES.items()]
    return pa.schema([("input_ids", pa.list_(ids)), *numbers])


def record_batch(
    board: Board,
    *,
    tokens: Tokens,
    ends: npt.NDArray[np.int64],
    prompt_lengths: npt.NDArray[Any],
    cot_lengths: npt.NDArray[Any],
    puzzle_ids: npt.NDArray[np.uint64],
    segment_indices: npt.NDArray[Any],
) -> pa.RecordBatch:
    """Create a batch of sequences; row k has `tokens[ends[k - 1]:ends[k]]`, arrays (n,)."""
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends
    schema = arrow_schema(board)
    numbers = (prompt_lengths, cot_lengths, puzzle_ids, segment_indices)
    columns = [pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens))]
    columns += [
        pa.array(values.astype(dtype, copy=False))
        for values, dtype in zip(numbers, _HUB_TYPES.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def hub_features(board: Board) -> dict[str, Any]:
    """Return the columns in the format of `dataset_info.json`."""
    ids = {"dtype": str(Vocabulary(board).dtype), "_type": "Value"}
    numbers = {name: {"dtype": dtype, "_type": "Value"} for name, dtype in _HUB_TYPES.items()}
    return {"input_ids": {"feature": ids, "_type": "List"}, **numbers}


def write_metadata(folder: Path, manifest: Manifest) -> None:
    """Write the metadata for `datasets.load_from_disk`, then the manifest."""
    for name, content in metadata_files(manifest).items():
        (folder / name).write_bytes(content)


def metadata_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the contents of the metadata files derived from the manifest, and of itself, last."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": shard.name} for shard in manifest.shards],
        "_fingerprint": manifest.digest[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    features = hub_features(get_board(manifest.board))
    return {
        "state.json": to_json(state),
        "dataset_info.json": to_json({"features": features}),
        MANIFEST_NAME: manifest.to_bytes(),
    }


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a finished data set.

    Raises:
        FileNotFoundError: No manifest: not a data set, or an unfinished build.
        ValueError: Another schema version or vocabulary.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no {MANIFEST_NAME}, not a finished data set")
    manifest = Manifest.read(path)
    if manifest.vocabulary_digest != Vocabulary(get_board(manifest.board)).digest:
        raise ValueError(f"{path}: vocabulary_digest differs from this version's vocabulary")
    return manifest


class TokenStore:
    """Memory-mapped sequences of a data set; columns are arrays of shape (num_rows,)."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.board = get_board(manifest.board)
        self._batches: list[pa.RecordBatch] = []
        for shard in manifest.shards:
            path = folder / shard.name
            with pa.ipc.open_stream(pa.memory_map(str(path))) as reader:
                self._batches += [batch for batch in reader if batch.num_rows]
        self._starts = [0, *np.cumsum([batch.num_rows for batch in self._batches]).tolist()]
        self._tokens = [_numpy(batch.column("input_ids").values) for batch in self._batches]
        self._offsets = [_numpy(batch.column("input_ids").offsets) for batch in self._batches]

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        """Open a finished data set.

        Raises:
            FileNotFoundError: No manifest: not a data set, or an unfinished build.
            ValueError: Another schema version or vocabulary, or a shard does not match its digest.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        problems = find_damaged(folder, {shard.name: shard.sha256 for shard in manifest.shards})
        if problems:
            raise ValueError(problems[0])
        try:
            store = cls(folder, manifest)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{folder}: a shard is missing or damaged ({error})") from None
        if len(store) != manifest.num_rows:
            raise ValueError(f"{folder}: {len(store)} rows, the manifest says {manifest.num_rows}")
        return store

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, row: int) -> Tokens:
        """Ids of a row: a read-only view, uint8 or uint16, shape (length,)."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row}: allowed are 0 to {len(self) - 1}")
        k = bisect.bisect_right(self._starts, row) - 1
        local = row - self._starts[k]
        start, end = self._offsets[k][local : local + 2]
        tokens: Tokens = self._tokens[k][start:end]
        return tokens

    def _column(self, name: str) -> npt.NDArray[Any]:
        empty = np.empty(0, dtype=_HUB_TYPES[name])
        return np.concatenate([empty, *(_numpy(batch.column(name)) for batch in self._batches)])

    @cached_property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """Tokens of each row."""
        return self._stored_lengths()

    def _stored_lengths(self) -> npt.NDArray[np.uint32]:
        empty = np.empty(0, dtype=np.uint32)
        parts = [np.diff(offsets).astype(np.uint32) for offsets in self._offsets]
        return np.concatenate([empty, *parts])

    @cached_property
    def prompt_lengths(self) -> npt.NDArray[np.uint16]:
        """Prompt tokens of each row."""
        return self._column("prompt_length")

    @cached_property
    def cot_lengths(self) -> npt.NDArray[np.uint32]:
        """CoT length of each row's puzzle."""
        return self._column("cot_length")

    @cached_property
    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Id of each row's puzzle."""
        return self._column("puzzle_id")

    @cached_property
    def first_rows(self) -> npt.NDArray[np.int64]:
        """First row of each puzzle, shape (num_puzzles,)."""
        return np.flatnonzero(self.segment_indices == 0)

    @cached_property
    def segment_indices(self) -> npt.NDArray[np.uint32]:
        """Index of each row within its puzzle's segments."""
        return self._column("segment_index")


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return values
