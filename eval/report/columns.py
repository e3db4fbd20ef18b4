"""Columns of the leaderboard, shared by the page, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eval.report.build import LeaderboardRow
from eval.report.compare import SIGNIFICANT
from eval.results.summary import Accuracy

MISSING = "-"
Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column: an attribute of a row and its format."""

    name: str
    """Name in CSV."""
    title: str
    """Heading."""
    help: str
    """Short description."""
    attribute: str
    """Value for sorting and CSV: a dotted path of attributes of `LeaderboardRow`."""
    shown: str | None = None
    """Attribute to show, if it is not `attribute`."""
    format: Callable[[Any], str] = str
    """Formats the shown attribute."""
    is_text: bool = False
    """Whether the column is left-aligned and sorted as text."""
    is_optional: bool = False
    """Whether the column is omitted if no row has a value."""

    @property
    def is_default(self) -> bool:
        """Whether the page initially shows the column."""
        return self.name in DEFAULT_COLUMNS

    def value(self, row: LeaderboardRow) -> Value:
        """Return the value for sorting and CSV."""
        value: Value = _get(row, self.attribute)
        return value

    def text(self, row: LeaderboardRow) -> str:
        """Return the text to show."""
        value = _get(row, self.shown or self.attribute)
        return MISSING if value is None else self.format(value)


def _get(row: LeaderboardRow, path: str) -> Any:
    """Return the attribute at a dotted path, or None if an attribute on the path is None."""
    value: Any = row
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


DEFAULT_COLUMNS = (
    *("rank", "model", "accuracy", "num_puzzles", "num_parameters", "mode", "engine"),
    "mean_seconds",
)
"""Columns that the page shows initially; they fit a window of 1280 pixels."""


def percent(share: float) -> str:
    """Format a share in percent; 100 and 0 are reserved for exactly all and none."""
    hundredths = round(share * 1e4)
    if share < 1:
        hundredths = min(hundredths, 9999)
    if share > 0:
        hundredths = max(hundredths, 1)
    return f"{hundredths / 100:.2f}"


def with_interval(result: Accuracy | None) -> str:
    """Format an accuracy with its 95% interval in percent."""
    if result is None or result.accuracy is None:
        return MISSING
    return f"{percent(result.accuracy)} [{percent(result.low)}, {percent(result.high)}]"


def compact(number: float | None) -> str:
    """Format a large number with three digits and a unit, such as 19.0M."""
    if number is None:
        return MISSING
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            return f"{number / size:#.3g}".rstrip(".") + unit
    return f"{number:.0f}"


def grouped(number: float | None) -> str:
    """Format a number with thousands separators."""
    return MISSING if number is None else f"{number:,.0f}"


def seconds(number: float | None) -> str:
    """Format seconds or dollars with three digits."""
    return MISSING if number is None else f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def _solved_of(result: Accuracy) -> str:
    return f"{result.num_solved}/{result.num_puzzles}"


def _mode(mode: str) -> str:
    return {"cot": "CoT", "scot": "SCoT"}.get(mode, mode)


COLUMNS: tuple[Column, ...] = (
    Column(
        name="rank",
        title="#",
        help="rank on these puzzles; shared where the McNemar test finds no difference "
        f"(p > {SIGNIFICANT})",
        attribute="rank",
    ),
    Column(
        name="model",
        title="Model",
        help="name of the model",
        attribute="label",
        shown="title",
        is_text=True,
    ),
    Column(
        name="accuracy",
        title="Solved, %",
        help="grids solved, with the 95% Wilson interval",
        attribute="result.accuracy",
        shown="result",
        format=with_interval,
    ),
    Column(
        name="num_puzzles",
        title="n",
        help="puzzles",
        attribute="result.num_puzzles",
        format=grouped,
    ),
    Column(
        name="hardest",
        title="Hardest",
        help="solved of the hardest puzzles by CoT length, where evaluated",
        attribute="hardest.accuracy",
        shown="hardest",
        format=_solved_of,
    ),
    Column(
        name="num_parameters",
        title="Params",
        help="parameters, including embeddings",
        attribute="num_parameters",
        format=compact,
    ),
    Column(
        name="train_tokens",
        title="Train tokens",
        help="training tokens",
        attribute="train_tokens",
        format=compact,
    ),
    Column(name="train_seed", title="Seed", help="training seed", attribute="train_seed"),
    Column(
        name="mode",
        title="Mode",
        help="output of the model: CoT, summarized CoT, text, or a grid (imported)",
        attribute="mode",
        format=_mode,
        is_text=True,
    ),
    Column(
        name="max_cot_length",
        title="N",
        help="cut-off on the CoT length of training puzzles",
        attribute="max_cot_length",
        format=grouped,
    ),
    Column(
        name="precision",
        title="Precision",
        help="precision policy of the evaluation",
        attribute="precision",
        is_text=True,
    ),
    Column(
        name="engine", title="Engine", help="inference engine", attribute="engine", is_text=True
    ),
    Column(
        name="mean_new_tokens",
        title="Tokens/puzzle",
        help="mean number of generated tokens per puzzle",
        attribute="mean_new_tokens",
        format=grouped,
    ),
    Column(
        name="mean_segments",
        title="Segments/puzzle",
        help="mean number of segments per puzzle",
        attribute="mean_segments",
        format="{:,.1f}".format,
    ),
    Column(
        name="mean_seconds",
        title="s/puzzle",
        help="total wall time divided by the number of puzzles, in seconds",
        attribute="mean_seconds",
        format=seconds,
    ),
    Column(
        name="lenient",
        title="Lenient, %",
        help="grids solved by the lenient parser, which accepts any notation",
        attribute="answers.lenient.accuracy",
        shown="answers.lenient",
        format=with_interval,
        is_optional=True,
    ),
    Column(
        name="right_cells",
        title="Correct cells, %",
        help="blank cells filled as in the solution (partial credit, not ranked)",
        attribute="answers.right_cells",
        format=percent,
        is_optional=True,
    ),
    Column(
        name="pass_at_1",
        title="pass@1, %",
        help="mean share of solved replies, with several samples",
        attribute="sampled.pass_at_1",
        format=percent,
        is_optional=True,
    ),
    Column(
        name="pass_at_k",
        title="pass@k, %",
        help="puzzles with at least one solved reply, with several samples",
        attribute="sampled.pass_at_k",
        format=percent,
        is_optional=True,
    ),
    Column(
        name="num_samples",
        title="k",
        help="replies sampled per puzzle; the rank is by their majority",
        attribute="sampled.num_samples",
        shown="answers.num_samples",
        is_optional=True,
    ),
    Column(
        name="usd_per_puzzle",
        title="$/puzzle",
        help="price of a puzzle in US dollars",
        attribute="usd_per_puzzle",
        format=seconds,
        is_optional=True,
    ),
    Column(
        name="num_certified",
        title="Certified",
        help="puzzles whose tokens are certified (`eval certify`)",
        attribute="num_certified",
        format=grouped,
        is_optional=True,
    ),
    Column(
        name="num_replayed",
        title="Replayed",
        help="puzzles decoded again, alone and in fp32, with the same tokens",
        attribute="num_replayed",
        format=grouped,
        is_optional=True,
    ),
    Column(
        name="num_different",
        title="Different",
        help="puzzles decoded again, alone and in fp32, with other tokens",
        attribute="num_different",
        format=grouped,
        is_optional=True,
    ),
    Column(
        name="max_new_tokens",
        title="Token limit",
        help="limit of generated tokens per puzzle",
        attribute="max_new_tokens",
        format=grouped,
    ),
    Column(
        name="device",
        title="Device",
        help="device of the evaluation",
        attribute="device",
        is_text=True,
    ),
    Column(
        name="data_digest",
        title="Data",
        help="first digits of the digest of the puzzle list",
        attribute="data_digest",
        format="{:.8}".format,
        is_text=True,
    ),
)


def shown_columns(rows: Iterable[LeaderboardRow]) -> tuple[Column, ...]:
    """Return all columns except for optional ones without any value."""
    rows = list(rows)
    return tuple(
        column
        for column in COLUMNS
        if not column.is_optional or any(column.value(row) is not None for row in rows)
    )
