"""Tests of length tables that are interrupted, damaged or computed twice."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.lengths import build as lengths_build
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig, measure_puzzles
from data.lengths.table import LengthsTable
from data.puzzle_sources.sources import FileSource
from data.runtime.locks import locked_output
from solver.boards import Board, Grid
from solver.jit import IS_JIT
from tests.data.length_tables import CONFIG, files
from tests.data.puzzle_files import make_puzzles, write_csv

KILLED_RUN = """
import sys
from data.lengths import build as lengths_build
from scripts.cli.main import main
lengths_build.CHUNK_ROWS = 8
lengths_build.BATCH_ROWS = 3
lengths_build._ROW_GROUP_CHUNKS = 2
sys.exit(main(["data", "lengths", *sys.argv[1:]]))
"""


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.skipif(not IS_JIT, reason="plain Python is too slow for as many puzzles")
def test_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", make_puzzles("9x9", 60, num_blanks=56) * 8)
    whole, out = tmp_path / "whole", tmp_path / "out"
    measure_lengths(files(path), whole, config=LengthsConfig(), workers=1)
    argv = [sys.executable, "-c", KILLED_RUN, str(path), "--out", str(out), "--resume"]
    rng = random.Random(0)
    for _ in range(2):
        process = subprocess.Popen([*argv, "--workers", "2"], stderr=subprocess.DEVNULL)
        before = len(list(tmp_path.glob(".out.partial/chunk-*")))
        wanted = before + rng.randrange(4, 24)
        deadline = time.monotonic() + 240
        while len(list(tmp_path.glob(".out.partial/chunk-*"))) < wanted:
            assert process.poll() is None, "the run ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not out.exists()
    measure_lengths(files(path), out, config=LengthsConfig(), workers=3, resume=True)
    assert out.read_bytes() == whole.read_bytes()


@pytest.fixture
def interrupted(
    tmp_path: Path, puzzles: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> FileSource:
    """A source whose table is `whole`, and whose chunks are all in `.out.partial`."""
    monkeypatch.setattr(lengths_build, "CHUNK_ROWS", 8)
    source = files(write_csv(tmp_path / "a.csv", puzzles))
    measure_lengths(source, tmp_path / "whole", config=CONFIG)

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lengths_build, "_join_chunks", stop)
        with pytest.raises(KeyboardInterrupt):
            measure_lengths(source, tmp_path / "out", config=CONFIG)
    assert len(list((tmp_path / ".out.partial").glob("chunk-*"))) == 5
    return source


@pytest.mark.parametrize("damage", ["flipped", "cut short", "gone"])
def test_damaged_chunk_is_made_again(
    tmp_path: Path, interrupted: FileSource, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".out.partial" / "chunk-000003"
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(content[:20])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    measured = []

    def measure(board: Board, grids: Grid, **options: Any) -> Any:
        measured.append(len(grids))
        return measure_puzzles(board, grids, **options)

    monkeypatch.setattr(lengths_build, "measure_puzzles", measure)
    measure_lengths(interrupted, tmp_path / "out", config=CONFIG, resume=True)
    assert measured == [8]
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_full_disk_keeps_the_finished_chunks(
    tmp_path: Path, interrupted: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (2, 4):
        (tmp_path / ".out.partial" / f"chunk-{number:06}").unlink()
    write = Path.write_bytes

    def fail(self: Path, content: bytes) -> int:
        if "chunk-000004" in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space left"):
        measure_lengths(interrupted, tmp_path / "out", config=CONFIG, resume=True)
    monkeypatch.undo()
    monkeypatch.setattr(lengths_build, "CHUNK_ROWS", 8)
    assert not (tmp_path / "out").exists()
    names = {path.name for path in (tmp_path / ".out.partial").iterdir()}
    assert names == {"build.json", *(f"chunk-{number:06}" for number in range(4))}
    measure_lengths(interrupted, tmp_path / "out", config=CONFIG, resume=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_interrupted_run_is_not_mistaken_for_another(
    tmp_path: Path, interrupted: FileSource, puzzles: list[tuple[str, str]]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileExistsError, match="--resume"):
        measure_lengths(interrupted, out, config=CONFIG)
    with pytest.raises(ValueError, match=r"another config\.segment_tokens"):
        measure_lengths(interrupted, out, config=LengthsConfig(), resume=True)
    write_csv(tmp_path / "a.csv", puzzles[:10])
    with pytest.raises(ValueError, match=r"another source"):
        measure_lengths(interrupted, out, config=CONFIG, resume=True)
    assert len(measure_lengths(interrupted, out, config=CONFIG, rebuild=True)) == 10


def test_one_process_at_a_time(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    """A second one would write over the table of the first, or remove the chunks under it."""
    source = files(write_csv(tmp_path / "a.csv", puzzles[:3]))
    out, partial = tmp_path / "out", tmp_path / ".out.partial"
    for _ in ("without a table", "with one"):
        partial.mkdir()
        (partial / "chunk-000000").touch()
        for options in ({"resume": True}, {"rebuild": True}):
            with locked_output(out), pytest.raises(ValueError, match="another process"):
                measure_lengths(source, out, config=CONFIG, **options)
        assert (partial / "chunk-000000").exists()
        measure_lengths(source, out, config=CONFIG, rebuild=True)


def test_finished_table_is_taken_or_replaced(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    source, out = files(write_csv(tmp_path / "a.csv", puzzles)), tmp_path / "out"
    measure_lengths(source, out, config=CONFIG)
    before = out.read_bytes()
    with pytest.raises(FileExistsError, match="--rebuild"):
        measure_lengths(source, out, config=CONFIG)
    (tmp_path / ".out.partial").mkdir()
    assert len(measure_lengths(source, out, config=CONFIG, resume=True)) == 40
    assert out.read_bytes() == before
    assert not (tmp_path / ".out.partial").exists(), "a kill after the rename leaves no litter"
    with pytest.raises(ValueError, match="another config"):
        measure_lengths(source, out, config=LengthsConfig(), resume=True)
    measure_lengths(source, out, config=LengthsConfig(), rebuild=True)
    assert LengthsTable.open(out).segment_tokens == 512


def test_rebuild_replaces_tables_only(tmp_path: Path) -> None:
    """The list itself was replaced where it was given as the output by mistake."""
    path = write_csv(tmp_path / "a.csv", make_puzzles("4x4", 3))
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"puzzle": ["1..............."]}), parquet)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    before = path.read_bytes(), parquet.read_bytes()
    for out in (path, parquet, tmp_path, pipe):
        with pytest.raises(FileExistsError, match="was not made by sudocot; it is not replaced"):
            measure_lengths(files(path), out, config=CONFIG, rebuild=True)
    for out in (path, parquet):
        with pytest.raises(ValueError, match=r"damaged or not made by sudocot, so it is not res"):
            measure_lengths(files(path), out, config=CONFIG, resume=True)
    assert (path.read_bytes(), parquet.read_bytes()) == before
    assert pipe.is_fifo()
