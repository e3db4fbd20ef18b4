"""Plots of a report through matplotlib, with the deterministic style of `svg_style`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from data.page.svg_style import GROUND, INK, MARKERS, SERIES, plot_style, to_svg
from data.runtime.plot_text import add_legend
from eval.engines.contract import FinishReason
from eval.report.build import LeaderboardRow, LengthPoint

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    LegendEntries = list[tuple[Artist, str]]

REASON_STYLES = {
    FinishReason.SOLVED: (SERIES[2], None),
    FinishReason.WRONG: (SERIES[1], None),
    FinishReason.CHANGED_GIVENS: (SERIES[1], "///"),
    FinishReason.MALFORMED: (SERIES[4], None),
    FinishReason.LOOP: (SERIES[3], None),
    FinishReason.SEGMENT_CAP: (SERIES[5], None),
    FinishReason.TOTAL_CAP: (SERIES[0], None),
    FinishReason.TRUNCATED: (SERIES[0], "///"),
    FinishReason.CONTEXT: (SERIES[7], None),
    FinishReason.REFUSED: (SERIES[6], None),
}
"""Color and hatch of each finish reason."""


def draw_accuracy_by_length(series: Mapping[str, Sequence[LengthPoint]]) -> Drawing | None:
    """Draw accuracy with 95% intervals by CoT length, in the style of the paper's figures.

    Args:
        series: Points by label; empty series are omitted.

    Returns:
        The drawing; None if no evaluation has points at two lengths, where the leaderboard shows
        the same numbers.
    """
    drawn = {label: points for label, points in series.items() if points}
    if all(len(points) < 2 for points in drawn.values()):
        return None

    def draw(axes: Axes) -> LegendEntries:
        entries = [
            (_draw_series(axes, points, index=index), _shortened(label))
            for index, (label, points) in enumerate(drawn.items())
        ]
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.set(ylim=(-3, 103), xlabel="CoT length of the solver, tokens", ylabel="solved, %")
        axes.grid(axis="y", linewidth=0.8)
        axes.tick_params(axis="x", labelrotation=30)
        return entries

    return Drawing(draw, height=3.9, legend_columns=2, num_legend=len(drawn))


def _draw_series(axes: Axes, points: Sequence[LengthPoint], *, index: int) -> Artist:
    lengths = [point.cot_length for point in points]
    shares = [100 * (point.result.accuracy or 0.0) for point in points]
    below = [max(0.0, share - 100 * p.result.low) for share, p in zip(shares, points, strict=True)]
    above = [max(0.0, 100 * p.result.high - share) for share, p in zip(shares, points, strict=True)]
    color = SERIES[index % len(SERIES)]
    marker = MARKERS[index // len(SERIES) % len(MARKERS)]
    line = axes.errorbar(
        lengths,
        shares,
        yerr=[below, above],
        color=color,
        marker=marker,
        markersize=5,
        linewidth=1.6,
        linestyle=("-", "--", ":")[index % 3],
        elinewidth=1.1,
        capsize=2.5,
    )
    sparse = [i for i, point in enumerate(points) if point.is_sparse]
    if sparse:
        axes.plot(
            [lengths[i] for i in sparse],
            [shares[i] for i in sparse],
            linestyle="none",
            marker=marker,
            markersize=5,
            markerfacecolor=GROUND,
            markeredgecolor=color,
            zorder=3,
        )
    return cast("Artist", line)


def draw_finish_reasons(rows: Sequence[LeaderboardRow]) -> Drawing:
    """Draw the shares of finish reasons of each evaluation as stacked bars."""
    reasons = [name for name in REASON_STYLES if any(row.finish_reasons.get(name) for row in rows)]

    def draw(axes: Axes) -> LegendEntries:
        entries: LegendEntries = []
        y_positions = range(len(rows))
        lefts = [0.0] * len(rows)
        for name in reasons:
            color, hatch = REASON_STYLES[name]
            widths = [
                100 * row.finish_reasons.get(name, 0) / row.result.num_puzzles for row in rows
            ]
            bars = axes.barh(
                y_positions,
                widths,
                left=lefts,
                height=0.62,
                color=color,
                hatch=hatch,
                edgecolor=GROUND,
                linewidth=1.0,
            )
            entries.append((cast("Artist", bars), name.replace("_", " ")))
            for bar, width in zip(bars, widths, strict=True):
                if width >= 8:
                    x, y = bar.get_x() + width / 2, bar.get_y() + bar.get_height() / 2
                    axes.text(x, y, f"{width:.1f}", color=GROUND, ha="center", va="center")
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        axes.set_yticks(y_positions, [_shortened(row.label) for row in rows])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(0, 100), xlabel="puzzles, %")
        axes.invert_yaxis()
        return entries

    return Drawing(draw, height=1.5 + 0.42 * len(rows), legend_columns=4, num_legend=len(reasons))


class Drawing:
    """A plot that can be rendered as SVG and PNG."""

    def __init__(
        self,
        draw: Callable[[Axes], LegendEntries],
        *,
        height: float,
        legend_columns: int,
        num_legend: int,
    ) -> None:
        self._draw = draw
        self._columns = legend_columns
        # Space for each row of the legend above the axes.
        self._height = height + 0.22 * -(-num_legend // legend_columns)

    def svg(self) -> str:
        """Return the plot as SVG without timestamps and versions."""
        with plot_style():
            return to_svg(self._figure())

    def png(self) -> bytes:
        """Return the plot as PNG."""
        stream = io.BytesIO()
        with plot_style():
            figure = self._figure()
            figure.savefig(stream, format="png", dpi=160, metadata={"Software": None})
        return stream.getvalue()

    def _figure(self) -> Figure:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.6, self._height), layout="constrained")
        FigureCanvasAgg(figure)
        handles, labels = zip(*self._draw(figure.subplots()), strict=True)
        add_legend(
            figure, handles, labels, loc="outside upper left", ncols=self._columns, fontsize=9
        )
        return figure


def _shortened(label: str, length: int = 34) -> str:
    if len(label) <= length:
        return label
    # Names of runs often share a prefix and differ at the end: seed, part, date.
    end = (length - 3) // 2
    return f"{label[: length - 3 - end]}...{label[-end:]}"
