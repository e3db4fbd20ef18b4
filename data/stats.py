"""Statistics of data sets and CoT length tables: the paper's table of sizes, and token budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data.lengths.table import LengthsTable
from data.store import TokenStore
from solver.boards import Board

PAPER_CUTOFFS = (2**10, 2**11, 2**12, 2**13, 2**14)
PAPER_NUM_ROWS = 3_831_994
"""Rows of the training set of the paper's table."""
PAPER_SEGMENT_TOKENS = 512
PAPER_TABLE = {
    2**10: (1_003_062, 549_886_480, 1_216_586, 597_636_422),
    2**11: (1_366_621, 1_081_910_259, 2_275_332, 1_278_330_673),
    2**12: (1_744_525, 2_215_629_831, 4_514_399, 2_812_386_367),
    2**13: (2_288_481, 5_501_694_458, 10_966_828, 7_382_325_156),
    2**14: (2_978_536, 13_676_729_210, 26_968_686, 18_916_908_506),
}
"""Puzzles, CoT tokens, SCoT segments, SCoT tokens for each N (paper, dataset statistics)."""
_QUANTILES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """Sizes of the training set with cut-off N on the CoT length."""

    max_cot_length: int
    """Cut-off N."""
    num_puzzles: int
    """Number of puzzles."""
    cot_tokens: int
    """Tokens of their CoTs."""
    num_segments: int | None
    """Segments of their SCoTs; None if unknown."""
    scot_tokens: int | None
    """Tokens of these segments; None if unknown."""
    cot_loss_tokens: int
    """Loss tokens of the CoTs."""
    scot_loss_tokens: int | None
    """Loss tokens of the SCoTs; None if unknown."""

    @property
    def sizes(self) -> tuple[int, int, int | None, int | None]:
        """Columns of the paper's table: puzzles, CoT tokens, segments, SCoT tokens."""
        return self.num_puzzles, self.cot_tokens, self.num_segments, self.scot_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics reported by `sudocot data stats`."""

    input: str
    """Path of the input."""
    kind: Literal["lengths", "cot", "scot"]
    """`lengths` for a CoT length table, or the mode of a data set."""
    board: str
    """Name of the board."""
    segment_tokens: int | None
    """Minimum trace tokens before a summary; None for CoT data."""
    num_rows_read: int
    """Rows of the source puzzle list."""
    is_whole_list: bool
    """Whether the input covers that list: nothing excluded or sampled, no copies added."""
    num_sequences: int | None
    """Sequences of a data set; None for a length table."""
    bytes_per_token: float | None
    """Bytes on disk per token of a data set; None for a length table."""
    branching_share: float | None
    """Share of the puzzles whose trace branches, that is, exceeds the `4 * num_cells + 4` tokens
    of a trace without choices; None without puzzles."""
    cot_length_quantiles: dict[str, int]
    """Quantiles of the CoT lengths of all puzzles."""
    total: Cutoff
    """All puzzles; N is the longest CoT."""
    cutoffs: list[Cutoff]
    """Puzzles within each cut-off N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Puzzles:
    """Counts of the distinct, solved puzzles; int64 (n,)."""

    cot_lengths: npt.NDArray[np.int64]
    cot_loss_tokens: npt.NDArray[np.int64]
    num_segments: npt.NDArray[np.int64] | None
    scot_tokens: npt.NDArray[np.int64] | None
    scot_loss_tokens: npt.NDArray[np.int64] | None

    def up_to(self, max_cot_length: int) -> Cutoff:
        chosen = self.cot_lengths <= max_cot_length
        return Cutoff(
            max_cot_length=max_cot_length,
            num_puzzles=int(chosen.sum()),
            cot_tokens=_sum(self.cot_lengths, chosen),
            num_segments=None if self.num_segments is None else _sum(self.num_segments, chosen),
            scot_tokens=None if self.scot_tokens is None else _sum(self.scot_tokens, chosen),
            cot_loss_tokens=_sum(self.cot_loss_tokens, chosen),
            scot_loss_tokens=(
                None if self.scot_loss_tokens is None else _sum(self.scot_loss_tokens, chosen)
            ),
        )


def _sum(values: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> int:
    return int(values[chosen].sum())


def compute_statistics(path: Path, *, cutoffs: Sequence[int] | None = None) -> Statistics:
    """Compute the statistics of a data set or a CoT length table.

    Args:
        path: Data set folder or table file.
        cutoffs: Values of N; None for the paper's on 9x9, and on other boards for the powers of
            two that cover the lengths, up to the limit of the input.

    Raises:
        FileNotFoundError: The data set or table does not exist.
        ValueError: The input is damaged, or one of `cutoffs` exceeds its limit.
    """
    if path.is_dir():
        return _of_store(TokenStore.open(path), cutoffs)
    return _of_table(LengthsTable.open(path), cutoffs)


def _of_table(table: LengthsTable, cutoffs: Sequence[int] | None) -> Statistics:
    usable = table.is_usable
    lengths = table.cot_lengths[usable].astype(np.int64)
    prompt_lengths = 2 * table.num_givens[usable].astype(np.int64) + 2
    puzzles = _Puzzles(
        cot_lengths=lengths,
        cot_loss_tokens=lengths - prompt_lengths,
        num_segments=table.num_segments[usable].astype(np.int64),
        scot_tokens=table.scot_tokens[usable].astype(np.int64),
        scot_loss_tokens=table.scot_loss_tokens[usable].astype(np.int64),
    )
    return Statistics(
        input=str(table.path),
        kind="lengths",
        board=table.board.name,
        segment_tokens=table.segment_tokens,
        num_rows_read=len(table),
        is_whole_list=True,
        num_sequences=None,
        bytes_per_token=None,
        **_summaries(puzzles, table.board, cutoffs, limit=table.max_tokens),
    )


def _of_store(store: TokenStore, cutoffs: Sequence[int] | None) -> Statistics:
    manifest = store.manifest
    is_scot = manifest.mode == "scot"
    puzzles = _scot_puzzles(store) if is_scot else _cot_puzzles(store)
    num_bytes = sum((store.folder / shard.name).stat().st_size for shard in manifest.shards)
    funnel = manifest.funnel
    return Statistics(
        input=str(store.folder),
        kind="scot" if is_scot else "cot",
        board=store.board.name,
        segment_tokens=manifest.segment_tokens,
        num_rows_read=funnel["read"],
        is_whole_list=(
            funnel["excluded"] == funnel["not_sampled"] == 0
            and funnel["traced"] == funnel["chosen"]
        ),
        num_sequences=len(store),
        bytes_per_token=num_bytes / manifest.num_tokens if manifest.num_tokens else None,
        **_summaries(puzzles, store.board, cutoffs, limit=manifest.max_cot_length),
    )


def _cot_puzzles(store: TokenStore) -> _Puzzles:
    lengths = store.lengths.astype(np.int64)
    return _Puzzles(
        cot_lengths=lengths,
        cot_loss_tokens=lengths - store.prompt_lengths,
        num_segments=None,
        scot_tokens=None,
        scot_loss_tokens=None,
    )


def _scot_puzzles(store: TokenStore) -> _Puzzles:
    """Sum over the segments of each puzzle, which are adjacent."""
    first = store.first_rows
    lengths, prompts = store.lengths.astype(np.int64), store.prompt_lengths.astype(np.int64)
    ends = np.append(first, len(store))
    cumulative = np.append(0, np.cumsum(lengths))
    cumulative_loss = np.append(0, np.cumsum(lengths - prompts))
    cot_lengths = store.cot_lengths[first].astype(np.int64)
    return _Puzzles(
        cot_lengths=cot_lengths,
        # The first prompt of an SCoT equals that of the CoT.
        cot_loss_tokens=cot_lengths - prompts[first],
        num_segments=np.diff(ends),
        scot_tokens=np.diff(cumulative[ends]),
        scot_loss_tokens=np.diff(cumulative_loss[ends]),
    )


def _summaries(
    puzzles: _Puzzles, board: Board, cutoffs: Sequence[int] | None, *, limit: int | None
) -> dict[str, Any]:
    """Fields of `Statistics` computed from the puzzles; `limit` is the longest CoT covered."""
    longest = int(puzzles.cot_lengths.max(initial=0))
    if cutoffs is None:
        cutoffs = [n for n in _default_cutoffs(board, puzzles.cot_lengths) if n <= (limit or n)]
    beyond = [n for n in cutoffs if limit is not None and n > limit]
    if beyond:
        raise ValueError(f"cutoffs: got {beyond[0]}, the input covers CoTs up to {limit} tokens")
    quantiles = {}
    if len(puzzles.cot_lengths):
        values = np.quantile(puzzles.cot_lengths, _QUANTILES, method="inverted_cdf")
        quantiles = {f"{q:.0%}": int(value) for q, value in zip(_QUANTILES, values, strict=True)}
    num_puzzles = len(puzzles.cot_lengths)
    num_branching = int(np.sum(puzzles.cot_lengths > 4 * board.num_cells + 4))
    return {
        "branching_share": num_branching / num_puzzles if num_puzzles else None,
        "cot_length_quantiles": quantiles,
        "total": puzzles.up_to(longest),
        "cutoffs": [puzzles.up_to(n) for n in cutoffs],
    }


def _default_cutoffs(board: Board, lengths: npt.NDArray[np.int64]) -> list[int]:
    if board.name == "9x9":
        return list(PAPER_CUTOFFS)
    if not len(lengths):
        return []
    low, high = (int(length - 1).bit_length() for length in (lengths.min(), lengths.max()))
    return [2**k for k in range(low, high + 1)]


def check_comparable(statistics: Statistics) -> None:
    """Check that the statistics are comparable with the paper's table.

    Raises:
        ValueError: They are not; the message lists the differences.
    """
    problems = []
    if statistics.board != "9x9":
        problems.append(f"the board is {statistics.board}")
    if statistics.num_rows_read != PAPER_NUM_ROWS:
        problems.append(f"{statistics.num_rows_read:,} rows were read, not {PAPER_NUM_ROWS:,}")
    if not statistics.is_whole_list:
        problems.append("puzzles were excluded, sampled or copied")
    if statistics.segment_tokens not in (None, PAPER_SEGMENT_TOKENS):
        problems.append(
            f"summaries are inserted after {statistics.segment_tokens} trace tokens, "
            f"not {PAPER_SEGMENT_TOKENS}"
        )
    if problems:
        raise ValueError(
            f"{statistics.input}: the paper's table is about the full training set of "
            f"sudoku-extreme; here {' and '.join(problems)}"
        )
