"""What a build will do: its configuration, its identity on disk, and its division into shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from data.builder.ingest import Choice, Spool, choose_puzzles, fill_spool
from data.builder.shards import Recipe
from data.puzzle_sources.sources import Source
from data.runtime.ranges import CotLength, Seed, SegmentTokens, check_ranges
from data.store import TokenStore
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, TRACE_RULE

MAX_PARTS = 65536
"""Parts that a build or an evaluation can be divided into."""
_FEWEST_PUZZLES, _MOST_PUZZLES, _WANTED_SHARDS = 32, 4096, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """What the bytes of a data set depend on, beside its source."""

    mode: Literal["cot", "scot"] = "cot"
    """Whole chains of thought, or summarized segments."""
    max_cot_length: CotLength | None = 16384
    """Cut-off N: longest CoT that is kept, also for segments; None for no cut-off."""
    segment_tokens: SegmentTokens = 512
    """Trace tokens after which a summary is due (SCoT)."""
    sample: Annotated[int, Ge(0), Le(10**12)] | None = None
    """Number of puzzles to draw at random; None for all."""
    shuffle: bool = False
    """Put the puzzles into random order; else they keep that of the source."""
    copies: Annotated[int, Ge(0), Le(10**6)] = 0
    """Random symmetric copies of each puzzle to add."""
    check_unique: bool = True
    """Leave out puzzles with more than one solution."""
    seed: Seed = 0
    """Seed of sampling, order and symmetries."""
    shard_puzzles: Annotated[int, Ge(1), Le(10**7)] | None = None
    """Puzzles traced for a shard; None for 4096, or fewer where that made less than 32 shards."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part `index` of `count` of a build; counted from 0."""

    index: int
    """Number of this part."""
    count: int
    """Number of parts."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MAX_PARTS:
            raise ValueError(
                f"shard: got {self.index}/{self.count}, allowed are 0/n to n-1/n, n to {MAX_PARTS}"
            )

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read `i/n`."""
        try:
            index, count = map(int, text.split("/"))
        except ValueError:
            raise ValueError(f"shard: got {text!r}, allowed is i/n, such as 0/8") from None
        return cls(index=index, count=count)


def part_folder(out: Path, part: Part) -> Path:
    """Folder of a part of `out`, beside it: `NAME.parts/i-of-n`."""
    return parts_folder(out) / f"{part.index}-of-{part.count}"


def parts_folder(out: Path) -> Path:
    """Folder of all parts of `out`, beside it: `NAME.parts`."""
    return out.with_name(f"{out.name}.parts")


def find_parts(out: Path, *, marker: str) -> list[Path]:
    """Folders of all parts of `out`, in order.

    Args:
        out: What the parts are parts of.
        marker: File that a part has.

    Raises:
        FileNotFoundError: no parts, or some are missing; the message lists them.
        ValueError: parts of different divisions.
    """
    parent = parts_folder(out)
    counts = {path.name.partition("-of-")[2] for path in parent.glob("[0-9]*-of-*")}
    if not counts:
        raise FileNotFoundError(f"{parent}: no parts of {out}")
    if len(counts) > 1:
        raise ValueError(f"{parent}: parts of different divisions, {', '.join(sorted(counts))}")
    count = _read_count(counts.pop(), parent=parent)
    folders = [part_folder(out, Part(index=index, count=count)) for index in range(count)]
    missing = [folder.name for folder in folders if not (folder / marker).exists()]
    if missing:
        raise FileNotFoundError(f"{parent}: missing {', '.join(missing)}")
    return folders


def _read_count(text: str, *, parent: Path) -> int:
    """Read the number of parts from the name of one."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not is_number or not 1 <= int(text) <= MAX_PARTS:
        raise ValueError(f"{parent}: a part of {text[:20]}; allowed are 1 to {MAX_PARTS} parts")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that the shards depend on."""

    config: BuildConfig
    """Configuration."""
    recipe: Recipe
    """What is done with each puzzle."""
    spool: Spool
    """The puzzles."""
    choice: Choice
    """Which of them, in which order."""

    @property
    def num_places(self) -> int:
        """Puzzles to trace, copies included."""
        return len(self.choice.rows) * (1 + self.config.copies)

    @property
    def shard_puzzles(self) -> int:
        """Places of a shard, the last one excepted; it must not depend on the workers."""
        if self.config.shard_puzzles is not None:
            return self.config.shard_puzzles
        return min(_MOST_PUZZLES, max(_FEWEST_PUZZLES, -(-self.num_places // _WANTED_SHARDS)))

    @property
    def num_shards(self) -> int:
        """Files of the whole data set."""
        return max(1, -(-self.num_places // self.shard_puzzles))

    def shard_name(self, index: int) -> str:
        """File name of a shard."""
        return f"data-{index:05}-of-{self.num_shards:05}.arrow"

    def shard_range(self, index: int) -> tuple[int, int]:
        """Places that a shard covers, from and to."""
        start = index * self.shard_puzzles
        return start, min(start + self.shard_puzzles, self.num_places)


def make_plan(
    source: Source,
    folder: Path,
    *,
    config: BuildConfig,
    exclude: Sequence[TokenStore],
    strict: bool,
) -> Plan:
    """Read the source into `folder` and plan the shards; none will trace a puzzle of `exclude`.

    Raises:
        ValueError: more puzzles to sample than there are; a bad row when `strict`.
    """
    spool = fill_spool(source, folder, strict=strict)
    excluded_ids = np.unique(
        np.concatenate([np.empty(0, dtype=np.uint64), *(store.puzzle_ids for store in exclude)])
    )
    has_cutoff = config.max_cot_length is not None
    recipe = Recipe(
        board=source.board,
        segment_tokens=config.segment_tokens if config.mode == "scot" else None,
        max_tokens=config.max_cot_length or DEFAULT_MAX_TOKENS,
        has_cutoff=has_cutoff,
        check_unique=config.check_unique,
        num_copies=config.copies,
        seed=config.seed,
        excluded_ids=excluded_ids,
    )
    choice = choose_puzzles(
        spool,
        excluded_ids=excluded_ids,
        sample=config.sample,
        shuffle=config.shuffle,
        seed=config.seed,
    )
    return Plan(config=config, recipe=recipe, spool=spool, choice=choice)


def identity(
    source: Source, config: BuildConfig, *, exclude: Sequence[TokenStore]
) -> dict[str, Any]:
    """All that decides the bytes of a data set; kept beside it as its resolved configuration."""
    return {
        "board": source.board.name,
        "trace_rule": TRACE_RULE,
        "source": source.describe(),
        "exclude": [store.manifest.digest for store in exclude],
        "config": asdict(config),
    }
