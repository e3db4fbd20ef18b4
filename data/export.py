"""Export of data sets to a folder for the hub: Parquet files, card, tokenizer, manifests.

    README.md                             card, with configs and features
    tokenizer.json, tokenizer_config.json
    cot/train-00000-of-00002.parquet      rows of the data set, in order
    cot/train-manifest.json               manifest: contents and source
    cot/train-build.json                  configuration that reproduces the data set

`datasets.load_dataset(FOLDER, "cot")` loads it, and `hf upload` uploads it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from data.card import ExportedPart, dataset_card
from data.runtime.digests import check_digests, file_digest
from data.runtime.files import check_replaceable, staged_directory
from data.runtime.locks import locked_output
from data.runtime.parallel import map_in_order
from data.runtime.progress import progress
from data.runtime.resumable import BUILD_FILE
from data.store import MANIFEST_NAME, Shard, TokenStore, arrow_schema
from solver.boards import get_board

ROW_GROUP_TOKENS = 1 << 24
_DEFAULT_SPLIT = "train"


class _File(NamedTuple):
    """One Parquet file to write, with its shards."""

    path: Path
    folder: Path
    shards: Sequence[Shard]
    schema: pa.Schema

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)


def export_datasets(
    folders: Sequence[Path],
    out: Path,
    *,
    file_tokens: int = 1 << 29,
    license_id: str | None = None,
    repository: str = "<this repository>",
    workers: int = 1,
    rebuild: bool = False,
) -> list[ExportedPart]:
    """Write data sets of one board to a folder for upload.

    Args:
        folders: Data sets with distinct modes or splits. The split of `folder:split` is `split`;
            that of `folder` is that of the source, or `train` if the source has none.
        out: Output folder.
        file_tokens: Approximate tokens per Parquet file; shards are not split.
        license_id: License identifier for the card; None if unknown.
        repository: Repository name on the hub, for the card.
        workers: Number of threads.
        rebuild: Replace `out` if it exists.

    Raises:
        FileExistsError: `out` exists and `rebuild` is off, or it is not an export.
        ValueError: The data sets are incompatible, one is damaged, or a split is not a name.
    """
    if out.exists() and not rebuild:
        raise FileExistsError(f"{out}: exists; --rebuild replaces it")
    if rebuild:
        check_replaceable(out, marker=f"*/*-{MANIFEST_NAME}")
    stores = _in_order([_open(folder) for folder in folders])
    for store in stores.values():
        check_digests(store.folder, [BUILD_FILE])
    parts = []
    total = sum(store.manifest.num_tokens for store in stores.values())
    with (
        locked_output(out),
        staged_directory(out, replace=rebuild) as staged,
        progress("exporting", total=total, unit="tokens") as advance,
    ):
        for (config, split), store in stores.items():
            files = _plan_files(store, staged / config, split, file_tokens=file_tokens)
            num_bytes = 0
            for file, arrow_bytes in zip(
                files, map_in_order(_write_file, files, workers=workers), strict=True
            ):
                num_bytes += arrow_bytes
                advance(file.num_tokens)
            for name in (MANIFEST_NAME, BUILD_FILE):
                shutil.copyfile(store.folder / name, staged / config / f"{split}-{name}")
            parts.append(
                ExportedPart(
                    config=config,
                    split=split,
                    manifest=store.manifest,
                    num_bytes=num_bytes,
                    download_size=sum(file.path.stat().st_size for file in files),
                )
            )
        _write_tokenizer(parts, staged)
        card = dataset_card(parts, license_id=license_id, repository=repository)
        (staged / "README.md").write_text(card, encoding="utf-8")
    return parts


def _open(folder: Path) -> tuple[TokenStore, str]:
    """Open `folder` or `folder:split`; return the store and the name of its split."""
    before, colon, split = folder.name.rpartition(":")
    if folder.exists() or not colon:
        store = TokenStore.open(folder)
        split = store.manifest.source.get("split") or _DEFAULT_SPLIT
    else:
        store = TokenStore.open(folder.parent / before)
    if not re.fullmatch(r"\w+", split, re.ASCII) or split == "all":
        raise ValueError(
            f"split: got {split!r}, allowed are letters, digits and _, except 'all' (reserved by "
            "`datasets`); FOLDER:SPLIT sets another split"
        )
    if not len(store):
        raise ValueError(f"{store.folder}: a data set without puzzles")
    return store, split


def _in_order(
    stores: Sequence[tuple[TokenStore, str]],
) -> dict[tuple[str, str], TokenStore]:
    """Check that the stores are compatible; return them by config and split, sorted."""
    named: dict[tuple[str, str], TokenStore] = {}
    first, _ = stores[0]
    for store, split in stores:
        name = store.manifest.mode, split
        if name in named:
            raise ValueError(
                f"{store.folder} and {named[name].folder}: both are {name[0]} of split "
                f"{split}; allowed is one data set of a mode and split; FOLDER:SPLIT sets the split"
            )
        if store.manifest.board != first.manifest.board:
            raise ValueError(
                f"{store.folder}: board {store.manifest.board}, {first.folder} has "
                f"{first.manifest.board}; allowed is one board"
            )
        named[name] = store
    return dict(sorted(named.items()))


def _plan_files(store: TokenStore, folder: Path, split: str, *, file_tokens: int) -> list[_File]:
    """Group the shards into files, in order."""
    groups: list[list[Shard]] = [[]]
    for shard in store.manifest.shards:
        if groups[-1] and sum(s.num_tokens for s in groups[-1]) + shard.num_tokens > file_tokens:
            groups.append([])
        groups[-1].append(shard)
    folder.mkdir(exist_ok=True)
    return [
        _File(
            path=folder / f"{split}-{number:05}-of-{len(groups):05}.parquet",
            folder=store.folder,
            shards=shards,
            schema=arrow_schema(store.board),
        )
        for number, shards in enumerate(groups)
    ]


def _write_file(file: _File) -> int:
    """Write one Parquet file; return the size of its rows in memory, in bytes."""
    num_bytes = 0
    # Without dictionary encoding, which suits token ids badly, files are a fifth smaller.
    with pq.ParquetWriter(
        file.path, file.schema, compression="zstd", use_dictionary=False
    ) as writer:
        for shard in file.shards:
            path = file.folder / shard.name
            if file_digest(path) != shard.sha256:
                raise ValueError(f"{path}: damaged, its digest is not that of the manifest")
            with pa.ipc.open_stream(pa.memory_map(str(path))) as reader:
                table = reader.read_all()
            num_bytes += table.nbytes
            rows = max(1, ROW_GROUP_TOKENS * shard.num_rows // max(1, shard.num_tokens))
            writer.write_table(table, row_group_size=rows)
    return num_bytes


def _write_tokenizer(parts: Sequence[ExportedPart], folder: Path) -> None:
    from data.tokenizer import save_tokenizer  # transformers takes seconds to import

    save_tokenizer(get_board(parts[0].manifest.board), folder)
