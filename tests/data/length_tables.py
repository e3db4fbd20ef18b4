"""Helpers for the tests of length tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data.lengths.measure import LengthsConfig
from data.puzzle_sources.sources import FileSource, open_files

CONFIG = LengthsConfig(segment_tokens=8)


def files(*paths: Path, **options: Any) -> FileSource:
    names = tuple(map(str, paths))
    return open_files(names, **{"board": None, "split": None, "revision": None, **options})
