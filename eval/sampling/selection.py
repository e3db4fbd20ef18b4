"""Sampling of puzzles: the three methods of the paper, buckets, or all puzzles.

    random    random subset
    targets   puzzles with CoT lengths closest to given targets
    hardest   puzzles with the longest CoT
    buckets   random subset of each bucket of CoT lengths or ratings: 512-1023, 1024-2047, ...

A sample depends on the set of puzzles and the seed only (`eval.sampling.choices`). Puzzles are
distinct and have a unique solution.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from data.runtime.parallel import map_in_order, num_threads
from data.runtime.ranges import CotLength, Count, Seed, check_ranges
from eval.results.records import DataRecord, SampledPuzzle, SamplingRecord, TargetSpread
from eval.sampling.choices import (
    Indices,
    bucket_label,
    choose_hardest,
    choose_random,
    choose_targets,
    target_ranges,
)
from eval.sampling.pool import PuzzlePool, digest_of_puzzles
from solver.boards import Board, Grid
from solver.generation.counting import MAX_UNIQUENESS_NODES, count_solutions_many
from solver.puzzles import format_grid

Kind = Literal["random", "targets", "hardest", "buckets", "all"]
BucketBy = Literal["cot_length", "rating"]
PAPER_COUNTS: dict[Kind, int | None] = {
    "random": 10_000,
    "targets": 1_000,
    "hardest": 100,
    "buckets": 1_000,
    "all": None,
}
"""Default number of puzzles, per target or bucket if applicable (Appendix "Evaluation")."""
LONGEST_DEFAULT_TARGET = 32_768
SPARSE_DISTANCE = 0.1
"""A target is sparse if a sampled puzzle deviates from it by more than this fraction."""

_UNIQUENESS_BATCH = 256

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """Selection of the puzzles to evaluate; the defaults are those of the paper."""

    sample: Kind = "random"
    """Method of selection: random, targets, hardest, buckets or all."""
    count: Count | None = None
    """Number of puzzles, per target or bucket if applicable; by default 10,000 random ones, 1,000
    per target or bucket, or the 100 hardest."""
    targets: tuple[CotLength, ...] = ()
    """Target CoT lengths; by default powers of two up to 32,768, limited to lengths that occur and
    fit the limit of new tokens."""
    bucket_by: BucketBy = "cot_length"
    """Quantity that defines the buckets: cot_length or rating."""
    seed: Seed = 0
    """Sampling seed."""
    check_unique: bool = True
    """Exclusion of puzzles with several solutions; otherwise any solution counts as solved."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.count is not None and self.sample == "all":
            raise ValueError(f"count: got {self.count}, not allowed with sample all")
        if self.targets and self.sample != "targets":
            raise ValueError(f"targets: not allowed with sample {self.sample}")
        if self.bucket_by != "cot_length" and self.sample != "buckets":
            raise ValueError(f"bucket_by: not allowed with sample {self.sample}")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets: got {self.targets}, must differ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Sampled puzzles and the records that describe them."""

    puzzles: tuple[SampledPuzzle, ...]
    """Puzzles, by key."""
    record: SamplingRecord
    """Sampling options with resolved defaults."""
    data: DataRecord
    """Source of the puzzles."""
    spreads: tuple[TargetSpread, ...]
    """Range of CoT lengths for each target."""


def draw_sample(
    pool: PuzzlePool, config: SamplingConfig, *, max_new_tokens: int | None = None
) -> Sample:
    """Sample puzzles from a pool.

    Args:
        pool: Puzzles to sample from.
        config: Sampling options.
        max_new_tokens: Token limit of a puzzle, which bounds the default targets.

    Raises:
        ValueError: No puzzle qualifies.
    """
    record = resolve(config, pool, max_new_tokens=max_new_tokens)
    is_usable = np.ones(len(pool), dtype=np.bool_)
    if config.sample == "buckets" and config.bucket_by == "rating":
        is_usable &= ~np.isnan(pool.ratings)
    num_unrated = int((~is_usable).sum())
    num_not_unique = 0
    # Removing puzzles that are not sampled does not change the sample, so that checking the
    # uniqueness of sampled puzzles only is equivalent to checking all.
    while True:
        usable = np.flatnonzero(is_usable)
        parts = [usable[part] for part in _choose(pool, usable, record)]
        chosen = np.concatenate([np.empty(0, dtype=np.intp), *parts])
        givens = pool.read_givens(chosen)
        if not config.check_unique:
            break
        is_unique = _have_one_solution(pool.board, givens)
        if is_unique.all():
            break
        is_usable[chosen[~is_unique]] = False
        num_not_unique += int((~is_unique).sum())
    if not len(chosen):
        raise ValueError(
            f"data: {pool.name} has no puzzle for --sample {config.sample}, "
            f"targets {record.targets}"
        )
    if config.sample == "hardest" and pool.excluded.get("capped"):
        logger.warning(
            "puzzles without a known CoT length, possibly among the hardest: %d",
            pool.excluded["capped"],
        )
    excluded = {**pool.excluded, "not unique": num_not_unique, "unrated": num_unrated}
    return Sample(
        puzzles=_describe(pool, chosen, givens, parts, record),
        record=record,
        data=DataRecord(
            name=pool.name,
            digest=pool.digest,
            sample_digest=digest_of_puzzles(pool.board, pool.puzzle_ids[chosen]),
            num_usable=int(is_usable.sum()),
            excluded={reason: count for reason, count in excluded.items() if count},
            puzzle_column=pool.columns.puzzle,
            answer_column=pool.columns.answer,
        ),
        spreads=_spreads(pool, parts, record),
    )


def resolve(
    config: SamplingConfig, pool: PuzzlePool, *, max_new_tokens: int | None = None
) -> SamplingRecord:
    """Return the sampling options with resolved defaults; arguments as in `draw_sample`."""
    targets = tuple(sorted(config.targets))
    if config.sample == "targets" and not targets and len(pool):
        least, greatest = int(pool.cot_lengths.min()), int(pool.cot_lengths.max())
        powers = [2**k for k in range(LONGEST_DEFAULT_TARGET.bit_length())]
        powers = [power for power in powers if least <= power <= greatest]
        # A model that follows the solver must be able to finish each puzzle near a target.
        targets = tuple(
            power
            for power in powers
            if max_new_tokens is None or target_ranges((power,))[0][1] <= max_new_tokens
        )
        if powers and not targets:
            raise ValueError(
                f"targets: got none, allowed with at most {max_new_tokens} new tokens are lengths "
                f"below {powers[0]}, which no puzzle has"
            )
    return SamplingRecord(
        check_unique=config.check_unique,
        kind=config.sample,
        count=config.count or PAPER_COUNTS[config.sample],
        seed=config.seed,
        targets=targets,
        bucket_by=config.bucket_by if config.sample == "buckets" else None,
    )


def _choose(pool: PuzzlePool, usable: Indices, record: SamplingRecord) -> list[Indices]:
    """Return indices into `usable`: one array per target or bucket, or a single one."""
    ids, lengths = pool.puzzle_ids[usable], pool.cot_lengths[usable]
    count, seed = record.count, record.seed
    if record.kind == "targets":
        assert count is not None
        return choose_targets(ids, lengths, targets=record.targets, count=count, seed=seed)
    if record.kind == "hardest":
        assert count is not None
        return [choose_hardest(ids, lengths, count=count, seed=seed)]
    if record.kind == "buckets":
        values = lengths if record.bucket_by == "cot_length" else pool.ratings[usable]
        labels = np.array([bucket_label(value) for value in values.tolist()])
        members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        return [part[choose_random(ids[part], count=count, seed=seed)] for part in members]
    return [choose_random(ids, count=count, seed=seed)]


def _describe(
    pool: PuzzlePool,
    chosen: Indices,
    givens: Grid,
    parts: list[Indices],
    record: SamplingRecord,
) -> tuple[SampledPuzzle, ...]:
    targets: list[int | None] = [None] * len(chosen)
    if record.kind == "targets":
        targets = np.repeat(record.targets, [len(part) for part in parts]).tolist()
    puzzles = []
    for index, grid, target in zip(chosen.tolist(), givens, targets, strict=True):
        cot_length, rating = int(pool.cot_lengths[index]), float(pool.ratings[index])
        groups = {"cot_length": bucket_label(cot_length)}
        if not math.isnan(rating):
            groups["rating"] = bucket_label(rating)
        if target is not None:
            groups["target"] = str(target)
        puzzles.append(
            SampledPuzzle(
                key=f"{pool.puzzle_ids[index]:016x}",
                givens=format_grid(pool.board, grid),
                cot_length=cot_length,
                rating=None if math.isnan(rating) else rating,
                groups=groups,
            )
        )
    return tuple(sorted(puzzles, key=lambda puzzle: puzzle.key))


def _spreads(
    pool: PuzzlePool, parts: list[Indices], record: SamplingRecord
) -> tuple[TargetSpread, ...]:
    spreads = []
    pairs = zip(record.targets, parts, strict=True) if record.kind == "targets" else ()
    for target, part in pairs:
        lengths = pool.cot_lengths[part]
        is_far = (np.abs(lengths - target) > SPARSE_DISTANCE * target).any()
        spreads.append(
            TargetSpread(
                target=target,
                num_puzzles=len(part),
                min_cot_length=int(lengths.min()) if len(part) else None,
                max_cot_length=int(lengths.max()) if len(part) else None,
                is_sparse=len(part) < (record.count or 0) or bool(is_far),
            )
        )
    return tuple(spreads)


def _have_one_solution(board: Board, givens: Grid) -> npt.NDArray[np.bool_]:
    """Return which puzzles (n, num_cells) have a unique solution, False if undecided."""

    def count(start: int) -> npt.NDArray[np.int64]:
        part = givens[start : start + _UNIQUENESS_BATCH]
        return count_solutions_many(board, part, limit=2, max_nodes=MAX_UNIQUENESS_NODES)

    starts = range(0, len(givens), _UNIQUENESS_BATCH)
    counts = map_in_order(count, starts, workers=num_threads(None))
    is_unique = [part == 1 for part in counts]
    return np.concatenate([np.empty(0, dtype=np.bool_), *is_unique])
