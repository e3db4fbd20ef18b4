"""Tests of the limits on documents: aliases, nesting, size, repeated keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compile_tm.machines.files import read_machine
from data.runtime import documents
from data.runtime.documents import read_json
from data.runtime.parts import MAX_PARTS, Part, find_parts
from scripts.launch.recipe import read_recipe
from solver.puzzles import read_puzzles

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
DEEP = "[" * 3000


@pytest.mark.parametrize("read", [documents.load_yaml, read_recipe, read_machine])
@pytest.mark.parametrize("text", [BOMB, DEEP])
def test_yaml_bombs_are_refused_in_a_short_message(read: object, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.yaml: ") as caught:
        read(path)  # type: ignore[operator]
    assert len(str(caught.value)) < 500


def test_deep_and_large_json_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deep"):
        read_json(path)
    monkeypatch.setattr(documents, "MAX_DOCUMENT_BYTES", 1000)
    with pytest.raises(ValueError, match="got 200000 bytes, allowed are 1000"):
        read_json(path)


@pytest.mark.parametrize("name", ["x.yaml", "x.json"])
def test_a_repeated_key_is_refused(name: str, tmp_path: Path) -> None:
    """Parsers keep the last value, so the first transitions of a machine would be lost."""
    path = tmp_path / name
    path.write_text('{"kind": "dfa", "transitions": [["a", "0", "a"]], "transitions": []}')
    with pytest.raises(ValueError, match=rf"{name}: transitions is repeated in "):
        read_machine(path)


@pytest.mark.parametrize("count", ["99999999999", "\u0669", "x", "0", str(MAX_PARTS + 1)])
def test_numbers_of_parts_are_limited(tmp_path: Path, count: str) -> None:
    (tmp_path / "out.parts" / f"0-of-{count}").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"allowed are 1 to {MAX_PARTS} parts"):
        find_parts(tmp_path / "out", marker="x")
    with pytest.raises(ValueError, match="shard: "):
        Part.parse("0/99999999999")


@pytest.mark.parametrize("size", [1, 200])
def test_parquet_with_a_large_cell_is_refused_before_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "p.parquet"
    texts = ["1" * 81] * size + ["0" * (1 << 25)]
    pq.write_table(pa.table({"puzzle": texts}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"column 'puzzle' has .* bytes in .* rows; allowed are"):
        read_puzzles(path)


def test_large_text_of_many_rows_is_in_memory_once(tmp_path: Path) -> None:
    """A dictionary of one text of 64 kB, which 5,000 rows share: 330 MB as separate texts."""
    path = tmp_path / "p.parquet"
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] + [1] * 5_000, pa.int32()), ["." * 81, "0" * (1 << 16)]
    )
    pq.write_table(pa.table({"puzzle": texts, "source": texts}), path)
    blocks = read_puzzles(path, block_rows=100)
    first = next(blocks)
    assert len(first.grids) == 1
    assert len(first.errors) == 99


@pytest.mark.parametrize("text", ["1 2 3 | ", "1\n", "[1, 2],"])
def test_large_cells_are_refused_unread(tmp_path: Path, text: str) -> None:
    """Minutes for some cells of the 8 MB that are allowed in memory."""
    path = tmp_path / "p.parquet"
    large = text * ((4 << 20) // len(text))
    pq.write_table(pa.table({"puzzle": ["." * 81, large]}), path, compression="zstd")
    (block,) = read_puzzles(path)
    (error,) = block.errors
    assert "characters; allowed are at most 65536" in str(error)
