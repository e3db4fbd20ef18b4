"""Plan of a build: configuration, identity, and division into shards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from data.builder.exclusion import Exclusion
from data.builder.ingest import Choice, Spool, choose_puzzles, fill_spool
from data.builder.shards import Recipe
from data.puzzle_sources.sources import Source
from data.runtime.ranges import CotLength, Seed, SegmentTokens, check_ranges
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, TRACE_RULE

_MIN_SHARD_PUZZLES, _MAX_SHARD_PUZZLES, _TARGET_SHARDS = 32, 4096, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """Options that determine the bytes of a data set, together with its source."""

    mode: Literal["cot", "scot"] = "cot"
    """Whole chains of thought, or summarized segments."""
    max_cot_length: CotLength | None = 16384
    """Cut-off N: maximum CoT length, also for segments; None for no cut-off."""
    segment_tokens: SegmentTokens = 512
    """Minimum trace tokens before a summary (SCoT)."""
    sample: Annotated[int, Ge(0), Le(10**12)] | None = None
    """Number of puzzles to sample at random; None for all."""
    shuffle: bool = False
    """Shuffle the puzzles; otherwise the order of the source is kept."""
    copies: Annotated[int, Ge(0), Le(10**6)] = 0
    """Number of random symmetric copies to add per puzzle."""
    check_unique: bool = True
    """Exclude puzzles with more than one solution."""
    seed: Seed = 0
    """Seed of sampling, order and symmetries."""
    shard_puzzles: Annotated[int, Ge(1), Le(10**7)] | None = None
    """Puzzles traced per shard; None for up to 4096, with at least 32 shards if possible."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Inputs of all shards of a build."""

    config: BuildConfig
    """Configuration."""
    recipe: Recipe
    """Processing of each puzzle."""
    spool: Spool
    """Puzzles of the source."""
    choice: Choice
    """Selected puzzles, in order."""

    @property
    def num_variants(self) -> int:
        """Puzzles to trace, including copies."""
        return len(self.choice.rows) * (1 + self.config.copies)

    @property
    def shard_puzzles(self) -> int:
        """Puzzles per shard, except the last; independent of the number of workers."""
        if self.config.shard_puzzles is not None:
            return self.config.shard_puzzles
        return min(
            _MAX_SHARD_PUZZLES, max(_MIN_SHARD_PUZZLES, -(-self.num_variants // _TARGET_SHARDS))
        )

    @property
    def num_shards(self) -> int:
        """Shards of the whole data set."""
        return max(1, -(-self.num_variants // self.shard_puzzles))

    def shard_name(self, index: int) -> str:
        """File name of a shard."""
        return f"data-{index:05}-of-{self.num_shards:05}.arrow"

    def shard_range(self, index: int) -> tuple[int, int]:
        """Half-open range of variants of a shard."""
        start = index * self.shard_puzzles
        return start, min(start + self.shard_puzzles, self.num_variants)


def make_plan(
    source: Source,
    folder: Path,
    *,
    config: BuildConfig,
    exclusion: Exclusion,
    workers: int,
    strict: bool,
) -> Plan:
    """Ingest the source into `folder` and plan the shards.

    Args:
        source: Source of the puzzles.
        folder: Existing folder for the spool.
        config: Build configuration.
        exclusion: Puzzles to exclude.
        workers: Number of threads, for canonical forms.
        strict: Raise at the first row that is malformed or has conflicting givens.

    Raises:
        ValueError: The sample is larger than the source, or an invalid row if `strict`.
    """
    spool = fill_spool(source, folder, strict=strict)
    has_cutoff = config.max_cot_length is not None
    recipe = Recipe(
        board=source.board,
        segment_tokens=config.segment_tokens if config.mode == "scot" else None,
        max_tokens=config.max_cot_length or DEFAULT_MAX_TOKENS,
        has_cutoff=has_cutoff,
        check_unique=config.check_unique,
        num_copies=config.copies,
        seed=config.seed,
        excluded_ids=exclusion.puzzle_ids,
    )
    choice = choose_puzzles(
        spool,
        is_excluded=partial(exclusion.find, spool, workers=workers),
        sample=config.sample,
        shuffle=config.shuffle,
        seed=config.seed,
    )
    return Plan(config=config, recipe=recipe, spool=spool, choice=choice)


def identity(source: Source, config: BuildConfig, *, exclusion: Exclusion) -> dict[str, Any]:
    """Return everything that determines the bytes of a data set, for its `build.json`."""
    return {
        "board": source.board.name,
        "trace_rule": TRACE_RULE,
        "source": source.describe(),
        **exclusion.identity(),
        "config": asdict(config),
    }
