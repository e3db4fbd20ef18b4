"""The columns of the leaderboard: one list, from which every form of the table is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eval.report.build import LeaderboardRow
from eval.results.summary import Accuracy

MISSING = "-"
Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column."""

    name: str
    """Name in CSV."""
    title: str
    """Heading."""
    help: str
    """What it is, in a few words."""
    value: Callable[[LeaderboardRow], Value]
    """What it is sorted by, and what CSV holds."""
    text: Callable[[LeaderboardRow], str]
    """What is shown."""
    is_text: bool = False
    """Aligned left, sorted as text."""
    is_optional: bool = False
    """Omitted from reports without any value."""

    @property
    def is_default(self) -> bool:
        """Whether the page shows it before the reader chooses columns."""
        return self.name in DEFAULT_COLUMNS


DEFAULT_COLUMNS = (
    *("rank", "model", "accuracy", "num_puzzles", "num_parameters", "mode", "engine"),
    "mean_seconds",
)
"""Columns of the page before the reader chooses others: they fit a window of 1280 pixels."""


def percent(share: float) -> str:
    """Write a share in percent; never 100 when it is not all, never 0 when it is not none."""
    hundredths = round(share * 1e4)
    if share < 1:
        hundredths = min(hundredths, 9999)
    if share > 0:
        hundredths = max(hundredths, 1)
    return f"{hundredths / 100:.2f}"


def with_interval(result: Accuracy | None) -> str:
    """Write accuracy and 95% interval in percent."""
    if result is None or result.accuracy is None:
        return MISSING
    return f"{percent(result.accuracy)} [{percent(result.low)}, {percent(result.high)}]"


def compact(number: float | None) -> str:
    """Write a large number with three digits and a unit: 19.0M."""
    if number is None:
        return MISSING
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            return f"{number / size:#.3g}".rstrip(".") + unit
    return f"{number:.0f}"


def grouped(number: float | None) -> str:
    """Write a number in full, in groups of three digits."""
    return MISSING if number is None else f"{number:,.0f}"


def seconds(number: float | None) -> str:
    """Write seconds with three digits."""
    return MISSING if number is None else f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def _hardest_text(row: LeaderboardRow) -> str:
    if row.hardest is None:
        return MISSING
    return f"{row.hardest.num_solved}/{row.hardest.num_puzzles}"


def _share_text(share: float | None) -> str:
    return MISSING if share is None else percent(share)


def _is_sampled(row: LeaderboardRow) -> bool:
    return row.answers is not None and row.answers.num_samples > 1


def _sampled(row: LeaderboardRow, name: str) -> float | None:
    value: float | None = getattr(row.answers, name) if _is_sampled(row) else None
    return value


COLUMNS: tuple[Column, ...] = (
    Column(
        name="rank",
        title="#",
        help="rank on these puzzles; shared where the McNemar test finds no difference (p > 0.05)",
        value=lambda row: row.rank,
        text=lambda row: MISSING if row.rank is None else str(row.rank),
    ),
    Column(
        name="model",
        title="Model",
        help="name of the model",
        value=lambda row: row.label,
        text=lambda row: row.title,
        is_text=True,
    ),
    Column(
        name="accuracy",
        title="Solved, %",
        help="grids solved, with the 95% Wilson interval",
        value=lambda row: row.result.accuracy,
        text=lambda row: with_interval(row.result),
    ),
    Column(
        name="num_puzzles",
        title="n",
        help="puzzles",
        value=lambda row: row.result.num_puzzles,
        text=lambda row: grouped(row.result.num_puzzles),
    ),
    Column(
        name="hardest",
        title="Hardest",
        help="solved of the hardest puzzles by CoT length, where evaluated",
        value=lambda row: row.hardest.accuracy if row.hardest else None,
        text=_hardest_text,
    ),
    Column(
        name="num_parameters",
        title="Params",
        help="parameters, embeddings included",
        value=lambda row: row.num_parameters,
        text=lambda row: compact(row.num_parameters),
    ),
    Column(
        name="train_tokens",
        title="Train tokens",
        help="tokens trained on",
        value=lambda row: row.train_tokens,
        text=lambda row: compact(row.train_tokens),
    ),
    Column(
        name="train_seed",
        title="Seed",
        help="seed of the training",
        value=lambda row: row.train_seed,
        text=lambda row: MISSING if row.train_seed is None else str(row.train_seed),
    ),
    Column(
        name="mode",
        title="Mode",
        help="what the model writes: CoT, summarized CoT, text, or a grid (imported)",
        value=lambda row: row.mode,
        text=lambda row: {"cot": "CoT", "scot": "SCoT"}.get(row.mode, row.mode),
        is_text=True,
    ),
    Column(
        name="max_cot_length",
        title="N",
        help="cut-off on the CoT length of training puzzles",
        value=lambda row: row.max_cot_length,
        text=lambda row: grouped(row.max_cot_length),
    ),
    Column(
        name="precision",
        title="Precision",
        help="precision policy of the evaluation",
        value=lambda row: row.precision,
        text=lambda row: row.precision,
        is_text=True,
    ),
    Column(
        name="engine",
        title="Engine",
        help="engine that decoded",
        value=lambda row: row.engine,
        text=lambda row: row.engine,
        is_text=True,
    ),
    Column(
        name="mean_new_tokens",
        title="Tokens/puzzle",
        help="generated tokens a puzzle, on average",
        value=lambda row: row.mean_new_tokens,
        text=lambda row: grouped(row.mean_new_tokens),
    ),
    Column(
        name="mean_segments",
        title="Segments/puzzle",
        help="segments a puzzle, on average",
        value=lambda row: row.mean_segments,
        text=lambda row: f"{row.mean_segments:,.1f}",
    ),
    Column(
        name="mean_seconds",
        title="s/puzzle",
        help="wall seconds a puzzle: all of the time, divided by the puzzles",
        value=lambda row: row.mean_seconds,
        text=lambda row: seconds(row.mean_seconds),
    ),
    Column(
        name="lenient",
        title="Lenient, %",
        help="grids solved by the lenient parser, which accepts any notation",
        value=lambda row: row.answers.lenient.accuracy if row.answers else None,
        text=lambda row: with_interval(row.answers.lenient if row.answers else None),
        is_optional=True,
    ),
    Column(
        name="right_cells",
        title="Right cells, %",
        help="blank cells that are filled as in the solution; partial credit, not ranked by",
        value=lambda row: row.answers.right_cells if row.answers else None,
        text=lambda row: _share_text(row.answers.right_cells if row.answers else None),
        is_optional=True,
    ),
    Column(
        name="pass_at_1",
        title="pass@1, %",
        help="mean share of solved replies, where several were sampled",
        value=lambda row: _sampled(row, "pass_at_1"),
        text=lambda row: _share_text(_sampled(row, "pass_at_1")),
        is_optional=True,
    ),
    Column(
        name="pass_at_k",
        title="pass@k, %",
        help="puzzles with at least one solved reply, where several were sampled",
        value=lambda row: _sampled(row, "pass_at_k"),
        text=lambda row: _share_text(_sampled(row, "pass_at_k")),
        is_optional=True,
    ),
    Column(
        name="num_samples",
        title="k",
        help="replies sampled per puzzle; the rank counts their majority",
        value=lambda row: row.answers.num_samples if _is_sampled(row) and row.answers else None,
        text=lambda row: str(row.answers.num_samples) if row.answers else MISSING,
        is_optional=True,
    ),
    Column(
        name="usd_per_puzzle",
        title="$/puzzle",
        help="price of the tokens of a puzzle, in US dollars",
        value=lambda row: row.usd_per_puzzle,
        text=lambda row: seconds(row.usd_per_puzzle),
        is_optional=True,
    ),
    Column(
        name="num_certified",
        title="Certified",
        help="puzzles whose tokens no order of summation changes, or that were decoded again alike",
        value=lambda row: row.num_certified,
        text=lambda row: grouped(row.num_certified),
        is_optional=True,
    ),
    Column(
        name="max_new_tokens",
        title="Token cap",
        help="cap on the generated tokens of a puzzle",
        value=lambda row: row.max_new_tokens,
        text=lambda row: grouped(row.max_new_tokens),
    ),
    Column(
        name="device",
        title="Device",
        help="where it was evaluated",
        value=lambda row: row.device,
        text=lambda row: row.device,
        is_text=True,
    ),
    Column(
        name="data_digest",
        title="Data",
        help="digest of the puzzle list, its beginning",
        value=lambda row: row.data_digest,
        text=lambda row: row.data_digest[:8],
        is_text=True,
    ),
)


def shown_columns(rows: Iterable[LeaderboardRow]) -> tuple[Column, ...]:
    """Return the columns of a report: all but the optional ones without any value."""
    rows = list(rows)
    return tuple(
        column
        for column in COLUMNS
        if not column.is_optional or any(column.value(row) is not None for row in rows)
    )
