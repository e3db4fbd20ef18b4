"""`sudocot data build`: build a data set of CoTs or SCoT segments from puzzles."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.commands.report import print_manifest
from data.puzzle_sources.columns import ColumnOptions
from data.puzzle_sources.puzzle_sets import open_with_columns
from data.puzzle_sources.sources import GeneratorSource, Source, open_files
from data.runtime.cpus import available_cpus
from data.runtime.parts import Part
from data.runtime.ranges import CotLength, Workers, check_ranges
from solver.boards import get_board

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Build a data set of solver traces.

    Sources are puzzle files in any supported format (text, CSV, Parquet, compressed), a folder with
    train.csv and test.csv, a data set on the hub such as sapientinc/sudoku-extreme, or --generate.

    Examples:
        sudocot data build puzzles.csv --out data/cot
        sudocot data build sapientinc/sudoku-extreme --split train --mode scot --out data/scot
        sudocot data build --generate 10000 --board 4x4 --mode scot --segment-tokens 16 --out d
        sudocot data build --generate 500 --board 9x9 --mine 1000 16384 --out data/mined
        sudocot data build puzzles.csv --out data/train --exclude test.csv --exclude-equivalent
        sudocot data build puzzles.csv --out data/cot --shard 0/8
    """

    sources: Positional[tuple[str, ...]] = ()
    """Files, pipes, - for standard input; or one folder; or owner/name on the hub."""
    out: Path
    """Folder of the data set."""
    split: str | None = None
    """Split of a folder or of a hub data set: train or test."""
    revision: str | None = None
    """Revision of a hub data set."""
    board: str | None = None
    """Board: 4x4, 6x6, 9x9 or 16x16; inferred from the puzzles if not given."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    generate: Annotated[int, Ge(0), Le(10**12)] = 0
    """Generate this many minimal puzzles instead of reading a source."""
    extra_givens: Annotated[int, Ge(0), Le(256)] = 0
    """Givens to add to each generated puzzle to make it easier."""
    mine: tuple[CotLength, CotLength] | None = None
    """Minimum and maximum CoT length to mine for by local search; a puzzle whose search ends
    outside of these lengths is kept. An interrupted build mines again; `data generate` writes mined
    puzzles to a file to build from."""
    build: OmitArgPrefixes[BuildConfig] = field(default_factory=BuildConfig)
    """Build configuration."""
    exclude: tuple[str, ...] = ()
    """Data sets, puzzle lists or splits (`folder:test`, `owner/name:test`) whose puzzles are
    excluded, such as the training data for a test set."""
    exclude_equivalent: bool = False
    """Exclude all puzzles that are equivalent to these under symmetry."""
    workers: Workers | None = None
    """Number of threads; by default the CPUs available to this process."""
    shard: str | None = None
    """Build only part i of n, as i/n counted from 0; `sudocot data merge` merges the parts."""
    resume: bool = False
    """Continue an interrupted build; keep a finished one."""
    rebuild: bool = False
    """Discard and replace an existing build."""
    strict: bool = False
    """Stop at the first row that is malformed or has conflicting givens, instead of skipping it,
    and at malformed rows of excluded lists. A finished data set is not checked again."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if bool(self.sources) == (self.generate > 0):
            raise ValueError(
                "sources: allowed are files, a folder or a hub name, or --generate instead"
            )
        if self.generate > 0 and self.board is None:
            raise ValueError("board: --generate needs --board")
        if self.generate > 0 and (self.split is not None or self.revision is not None):
            raise ValueError("split and revision: not allowed with --generate")
        if self.generate > 0 and self.columns != ColumnOptions():
            raise ValueError("puzzle_column and answer_column: not allowed with --generate")
        if self.extra_givens > 0 and self.generate == 0:
            raise ValueError("extra_givens: requires --generate")
        if self.mine is not None and (self.generate == 0 or self.extra_givens > 0):
            raise ValueError("mine: requires --generate, and excludes --extra-givens")
        if self.mine is not None and self.mine[1] < self.mine[0]:
            raise ValueError(
                f"mine: got {self.mine[0]} {self.mine[1]}, allowed is the smaller number first"
            )
        if self.exclude_equivalent and not self.exclude:
            raise ValueError("exclude_equivalent: requires --exclude")
        if self.resume and self.rebuild:
            raise ValueError("resume and rebuild: only one of them is allowed")


def main(config: Config) -> int:
    """Build the data set and print the outcomes of the rows."""
    part = Part.parse(config.shard) if config.shard else None
    if config.build.mode == "cot" and config.build.segment_tokens != BuildConfig().segment_tokens:
        logger.info("segment_tokens: no effect without --mode scot")
    manifest = build(
        _open_source(config),
        config.out,
        config=config.build,
        workers=config.workers,
        part=part,
        exclude=[
            open_with_columns(name, board=None, columns=config.columns.names)
            for name in config.exclude
        ],
        exclude_equivalent=config.exclude_equivalent,
        resume=config.resume,
        rebuild=config.rebuild,
        strict=config.strict,
    )
    if manifest is None:
        return 0
    print_manifest(Console(markup=False), config.out, manifest)
    if not manifest.num_puzzles:
        logger.warning("%s: no puzzle was kept", config.out)
    return 0 if manifest.num_puzzles else 1


def _open_source(config: Config) -> Source:
    if config.generate and config.board is not None:
        return GeneratorSource(
            board=get_board(config.board),
            count=config.generate,
            seed=config.build.seed,
            extra_givens=config.extra_givens,
            cot_lengths=config.mine,
            workers=config.workers or available_cpus()[0],
        )
    return open_files(
        config.sources,
        board=config.board,
        split=config.split,
        revision=config.revision,
        columns=config.columns.names,
    )
