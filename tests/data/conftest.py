"""Puzzles and settings shared by the tests of data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.lengths import build as lengths_build
from data.puzzle_sources.sources import FileSource
from tests.data.builds import files
from tests.data.puzzle_files import make_puzzles, write_csv


@pytest.fixture(scope="session")
def puzzles() -> list[tuple[str, str]]:
    """40 puzzles of 4x4 with their solutions."""
    return make_puzzles("4x4", 40)


@pytest.fixture
def source(tmp_path: Path, puzzles: list[tuple[str, str]]) -> FileSource:
    """The puzzles as a CSV file."""
    return files(write_csv(tmp_path / "in" / "train.csv", puzzles))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Length tables with several chunks for a few rows."""
    monkeypatch.setattr(lengths_build, "CHUNK_ROWS", 8)
    monkeypatch.setattr(lengths_build, "BATCH_ROWS", 3)
    monkeypatch.setattr(lengths_build, "_ROW_GROUP_CHUNKS", 2)
