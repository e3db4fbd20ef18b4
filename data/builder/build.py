"""Data set builds: ingest the source, write shards in parallel, publish.

A build works in a staging folder next to the output, `.NAME.partial`, which is renamed at the end.
An interrupted build leaves it there, and `resume` continues from the finished shards. Part i of n
of a job array writes every n-th shard to `NAME.parts/i-of-n`, and `merge` combines the parts into
the same bytes as a single build.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from data.builder.exclusion import Exclusion
from data.builder.funnel import ReadCounts, add_counts, funnel_record
from data.builder.ingest import SPOOL_FILES
from data.builder.plan import BuildConfig, Plan, identity, make_plan
from data.builder.shards import ShardReport, finished_report, make_shard, report_path
from data.puzzle_sources.puzzle_sets import PuzzleSet
from data.puzzle_sources.sources import Source
from data.runtime.digests import check_digests, write_digests
from data.runtime.files import (
    check_replaceable,
    publish_directory,
    publish_file,
    remove_superseded,
    resolve_output,
    to_json,
)
from data.runtime.locks import locked_output
from data.runtime.parallel import map_in_order, num_threads
from data.runtime.parts import Part, find_parts, part_folder, parts_folder
from data.runtime.progress import progress
from data.runtime.resumable import (
    BUILD_FILE,
    Resumable,
    check_identity,
    read_identity,
    resumable_output,
    write_identity,
)
from data.runtime.schema import read_record
from data.store import SCHEMA_VERSION, Manifest, TokenStore, write_metadata
from solver.boards import get_board
from solver.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

_PART_FILE = "part.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartFacts:
    """Content of `part.json`: facts shared by all parts of a build."""

    read: ReadCounts
    """Rows read."""
    num_shards: int
    """Shards of all parts."""


def build(
    source: Source,
    out: Path,
    *,
    config: BuildConfig,
    workers: int | None = None,
    part: Part | None = None,
    exclude: Sequence[PuzzleSet] = (),
    exclude_equivalent: bool = False,
    resume: bool = False,
    rebuild: bool = False,
    strict: bool = False,
) -> Manifest | None:
    """Build a data set, or one part of it.

    Args:
        source: Source of the puzzles.
        out: Folder of the data set.
        config: Build configuration.
        workers: Number of threads; None for the CPUs available to this process.
        part: Build only this part, for `merge`.
        exclude: Data sets and puzzle lists whose puzzles are excluded, such as the training data
            for test data.
        exclude_equivalent: Exclude all puzzles that are equivalent to these under symmetry.
        resume: Continue an interrupted build of the same source and configuration; a finished
            one is kept.
        rebuild: Discard and replace an existing build.
        strict: Raise at the first row that is malformed or has conflicting givens, instead of
            counting it, and for malformed rows of `exclude`.

    Returns:
        The manifest; None for a part.

    Raises:
        FileExistsError: `out` or an interrupted build exists and neither flag is set; or `out`
            is not a data set, which `rebuild` does not replace.
        ValueError: `resume` with another source or configuration, `exclude` with another board,
            an invalid row if `strict`, or another process is building the same output.
        OSError: For example, the disk is full; finished shards are kept for `resume`.
    """
    final = resolve_output(part_folder(out, part) if part else out)
    for puzzles in exclude:
        if puzzles.board != source.board:
            raise ValueError(
                f"exclude: {puzzles.name} has {puzzles.board.name} puzzles, allowed are "
                f"{source.board.name}"
            )
    exclusion = Exclusion(sets=exclude, up_to_symmetry=exclude_equivalent, strict=strict)
    build_identity = identity(source, config, exclusion=exclusion)
    if rebuild:
        check_replaceable(final, marker=BUILD_FILE)
    work = Resumable(
        out=final,
        identity=build_identity,
        find_identity=read_identity,
        finished_pattern="report-*",
        publish=lambda staging: publish_directory(staging, final, replace=rebuild),
        resume=resume,
        rebuild=rebuild,
    )
    with resumable_output(work) as staging:
        if staging is None:
            return None if part else TokenStore.open(out).manifest
        workers = num_threads(workers)
        plan = make_plan(
            source, staging, config=config, exclusion=exclusion, workers=workers, strict=strict
        )
        numbers = range(plan.num_shards)
        if part:
            numbers = numbers[part.index :: part.count]
        reports = _make_shards(plan, staging, numbers, workers=workers)
        manifest = None
        if part:
            facts = _PartFacts(read=plan.choice.counts, num_shards=plan.num_shards)
            publish_file(staging / _PART_FILE, to_json(asdict(facts)))
        else:
            manifest = _manifest(build_identity, plan.choice.counts, reports)
            _write_metadata(staging, manifest)
        # Files for a resume are removed only after all writes, which may fail on a full disk.
        _remove_files(staging / name for name in SPOOL_FILES)
        if not part:
            _remove_files(report_path(staging, number) for number in numbers)
        _remove_files(staging.glob(".*.tmp"))  # left by a kill during the publication of a file
    return manifest


def _write_metadata(folder: Path, manifest: Manifest) -> None:
    """Write the digest of the build configuration, which the manifest omits, and the metadata."""
    write_digests(folder, [BUILD_FILE])
    write_metadata(folder, manifest)


def _remove_files(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def merge(out: Path, *, rebuild: bool = False) -> Manifest:
    """Merge the parts in `NAME.parts` into the data set `out`, and remove them.

    The operation is idempotent; an interrupted merge is completed by running it again.

    Raises:
        FileExistsError: `out` is not the data set of the parts and `rebuild` is off, or it is not
            a data set.
        FileNotFoundError: No parts, or some are missing; the message lists them.
        ValueError: Parts of different builds, a shard that does not match its report, or another
            process is merging the same output.
    """
    out = resolve_output(out)
    if not out.exists():
        find_parts(out, marker=_PART_FILE)  # before the lock creates folders
    with locked_output(out):
        if out.exists() and not rebuild:
            return _finish_merge(out)
        check_replaceable(out, marker=BUILD_FILE)
        folders = find_parts(out, marker=_PART_FILE)
        first = read_record(folders[0] / _PART_FILE, _PartFacts)
        build_identity = read_identity(folders[0])
        for folder in folders:
            check_identity(folder, build_identity)
            if read_record(folder / _PART_FILE, _PartFacts) != first:
                raise ValueError(f"{folder}: its rows differ from those of {folders[0]}")
        # Not `.NAME.partial`, which may be an interrupted build.
        staging = out.with_name(f".{out.name}.merging")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        write_identity(staging, build_identity)
        reports = _take_shards(folders, staging, num_shards=first.num_shards)
        manifest = _manifest(build_identity, first.read, reports)
        _write_metadata(staging, manifest)
        publish_directory(staging, out, replace=rebuild)
        remove_superseded(parts_folder(out))
    return manifest


def _take_shards(folders: Sequence[Path], staging: Path, *, num_shards: int) -> list[ShardReport]:
    """Link or copy the shards of all parts into a folder; return their reports in order."""
    reports = []
    for number in range(num_shards):
        folder = folders[number % len(folders)]
        report = finished_report(folder, number)
        if report is None:
            raise ValueError(f"{folder}: shard {number} is missing or damaged; rebuild the part")
        shard, target = folder / report.shard.name, staging / report.shard.name
        try:
            target.hardlink_to(shard)
        except OSError:  # hard links are not supported by all file systems
            shutil.copyfile(shard, target)
        reports.append(report)
    return reports


def _finish_merge(out: Path) -> Manifest:
    """Remove the remaining parts of a merge that has already published `out`."""
    parts = parts_folder(out)
    identities = {path.read_bytes() for path in parts.glob(f"*-of-*/{BUILD_FILE}")}
    if not (out / BUILD_FILE).exists() or identities - {(out / BUILD_FILE).read_bytes()}:
        raise FileExistsError(
            f"{out}: exists and was not merged from these parts; --rebuild replaces it"
        )
    if parts.exists():
        remove_superseded(parts)
    logger.info("%s: already merged", out)
    check_digests(out, [BUILD_FILE])
    return TokenStore.open(out).manifest


def _make_shards(
    plan: Plan, folder: Path, numbers: Sequence[int], *, workers: int
) -> list[ShardReport]:
    """Write the shards that are not finished; return all reports in the order of `numbers`."""
    logger.info("shards of up to %d puzzles: %d", plan.shard_puzzles, len(numbers))
    reports = {number: finished_report(folder, number) for number in numbers}
    todo = [number for number, report in reports.items() if report is None]
    sizes = {number: int(np.diff(plan.shard_range(number))[0]) for number in numbers}
    total = sum(sizes.values())
    done = total - sum(sizes[number] for number in todo)
    with progress("tracing", total=total, unit="puzzles", done=done) as advance:
        made = map_in_order(partial(_make_shard, plan, folder), todo, workers=workers)
        for number, report in zip(todo, made, strict=True):
            if all(report is None for report in reports.values()):
                _log_size(report, folder, num_shards=len(numbers))
            reports[number] = report
            advance(sizes[number])
    return [report for report in reports.values() if report is not None]


def _make_shard(plan: Plan, folder: Path, number: int) -> ShardReport:
    start, end = plan.shard_range(number)
    report = make_shard(
        plan.recipe,
        plan.spool,
        plan.choice,
        folder=folder,
        name=plan.shard_name(number),
        start=start,
        end=end,
    )
    publish_file(report_path(folder, number), report.to_bytes())
    return report


def _log_size(report: ShardReport, folder: Path, *, num_shards: int) -> None:
    """Extrapolate the total size from the first shard; warn if it exceeds the free disk space."""
    expected = (folder / report.shard.name).stat().st_size * num_shards
    free = shutil.disk_usage(folder).free
    level = logging.WARNING if expected > free else logging.INFO
    logger.log(level, "about %s in all, %s free", decimal(expected), decimal(free))


def _manifest(
    build_identity: dict[str, Any], read: ReadCounts, reports: Sequence[ShardReport]
) -> Manifest:
    config = BuildConfig(**build_identity["config"])
    traces = add_counts([report.counts for report in reports])
    bins = np.sum([report.bins for report in reports], axis=0)
    return Manifest(
        schema_version=SCHEMA_VERSION,
        board=build_identity["board"],
        mode=config.mode,
        vocabulary_digest=Vocabulary(get_board(build_identity["board"])).digest,
        trace_rule=build_identity["trace_rule"],
        segment_tokens=config.segment_tokens if config.mode == "scot" else None,
        max_cot_length=config.max_cot_length,
        seed=config.seed,
        source=build_identity["source"],
        funnel=funnel_record(read, traces, bins),
        num_rows=sum(report.shard.num_rows for report in reports),
        num_puzzles=traces.kept,
        num_tokens=sum(report.shard.num_tokens for report in reports),
        num_loss_tokens=sum(report.num_loss_tokens for report in reports),
        shards=[report.shard for report in reports],
    )
