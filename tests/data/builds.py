"""Helpers for the tests of the builder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.puzzle_sources.sources import FileSource, open_files
from data.store import Manifest

SMALL = BuildConfig(shard_puzzles=7, segment_tokens=8)
SMALL_SCOT = BuildConfig(mode="scot", shard_puzzles=7, segment_tokens=8)


def files(*paths: Path, **options: Any) -> FileSource:
    names = tuple(map(str, paths))
    return open_files(names, **{"board": None, "split": None, "revision": None, **options})


def built(source: Any, out: Path, config: BuildConfig, **options: Any) -> Manifest:
    manifest = build(source, out, config=config, **options)
    assert manifest is not None
    return manifest
