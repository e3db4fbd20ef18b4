"""Plots of a report through matplotlib: the same bytes for the same numbers.

The same SVG goes into a file and into the page. In the page its colours become those of the page's
palette (`themed_svg`), so that it follows light and dark mode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from data.runtime.plot_text import add_legend
from eval.report.build import LeaderboardRow, LengthPoint

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    LegendEntries = list[tuple[Artist, str]]

# Colours of the files, and the palette names that take their place in the page.
_INK, _SOFT, _GRID, _GROUND = "#1b1d1f", "#585c61", "#dcdcd6", "#ffffff"
_SERIES = (
    "#1f5fbf",
    "#b4530a",
    "#187544",
    "#7b3fc4",
    "#b3266a",
    "#0f7383",
    "#6d6400",
    "#585c60",
)
_PALETTE = {
    _INK: "--ink",
    _SOFT: "--ink-soft",
    _GRID: "--line",
    _GROUND: "--panel",
    **{colour: f"--series-{i}" for i, colour in enumerate(_SERIES, start=1)},
}
_MARKERS = "osD^vPX*"
_END_COLOURS = {
    "solved": _SERIES[2],
    "wrong": _SERIES[1],
    "malformed": _SERIES[4],
    "loop": _SERIES[3],
    "segment_cap": _SERIES[5],
    "total_cap": _SERIES[0],
    "context": _SERIES[7],
}
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sudocot",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,  # A `$` in a name begins no formula.
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _SOFT,
    "axes.facecolor": _GROUND,
    "figure.facecolor": _GROUND,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "grid.color": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_accuracy_by_length(series: Mapping[str, Sequence[LengthPoint]]) -> Drawing | None:
    """Draw accuracy against CoT length, in the manner of the paper's figures, with intervals.

    Args:
        series: Points by label; a series without points is left out.

    Returns:
        The drawing; None when there is no point at all.
    """
    drawn = {label: points for label, points in series.items() if points}
    if not drawn:
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
    colour = _SERIES[index % len(_SERIES)]
    marker = _MARKERS[index // len(_SERIES) % len(_MARKERS)]
    line = axes.errorbar(
        lengths,
        shares,
        yerr=[below, above],
        color=colour,
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
            markerfacecolor=_GROUND,
            markeredgecolor=colour,
            zorder=3,
        )
    return cast("Artist", line)


def draw_ended_by(rows: Sequence[LeaderboardRow]) -> Drawing:
    """Draw why the puzzles of each evaluation ended, as bars of shares."""
    classes = [name for name in _END_COLOURS if any(row.ended_by[name] for row in rows)]

    def draw(axes: Axes) -> LegendEntries:
        entries: LegendEntries = []
        places = range(len(rows))
        lefts = [0.0] * len(rows)
        for name in classes:
            widths = [100 * row.ended_by[name] / row.result.num_puzzles for row in rows]
            bars = axes.barh(
                places,
                widths,
                left=lefts,
                height=0.62,
                color=_END_COLOURS[name],
                edgecolor=_GROUND,
                linewidth=1.0,
            )
            entries.append((cast("Artist", bars), name.replace("_", " ")))
            for bar, width in zip(bars, widths, strict=True):
                if width >= 8:
                    x, y = bar.get_x() + width / 2, bar.get_y() + bar.get_height() / 2
                    axes.text(x, y, f"{width:.1f}", color=_GROUND, ha="center", va="center")
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        axes.set_yticks(places, [_shortened(row.label) for row in rows])
        axes.tick_params(axis="y", length=0, labelcolor=_INK)
        axes.spines["left"].set_visible(False)
        axes.set(xlim=(0, 100), xlabel="puzzles, %")
        axes.invert_yaxis()
        return entries

    return Drawing(draw, height=1.5 + 0.42 * len(rows), legend_columns=4, num_legend=len(classes))


class Drawing:
    """A plot that can be written in several formats."""

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
        # Every row of the legend, above the axes, needs its own space.
        self._height = height + 0.22 * -(-num_legend // legend_columns)

    def svg(self) -> str:
        """The plot as SVG, without the time and the versions."""
        text = self._render("svg", metadata={"Date": None, "Creator": None}).decode()
        return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)

    def png(self) -> bytes:
        """The plot as PNG."""
        return self._render("png", metadata={"Software": None})

    def _render(self, kind: str, *, metadata: dict[str, None]) -> bytes:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with mpl.rc_context():
            mpl.rcdefaults()  # A reader's own settings do not change the bytes.
            mpl.rcParams.update(_RC)
            figure = Figure(figsize=(7.6, self._height), layout="constrained")
            FigureCanvasAgg(figure)
            handles, labels = zip(*self._draw(figure.subplots()), strict=True)
            add_legend(
                figure,
                handles,
                labels,
                loc="outside upper left",
                ncols=self._columns,
                fontsize=9,
            )
            stream = io.BytesIO()
            figure.savefig(stream, format=kind, dpi=160, metadata=metadata)
        return stream.getvalue()


def themed_svg(svg: str, *, prefix: str) -> str:
    """Make an SVG part of a page: colours of its palette, ids of its own, no XML head."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)

    def fix_tag(tag: re.Match[str]) -> str:
        fixed = tag[0]
        for colour, name in _PALETTE.items():
            fixed = fixed.replace(colour, f"var({name})")
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", fixed)

    return re.sub(r"<[^>]*>", fix_tag, body)  # Names are between tags, and stay as they are.


def _shortened(label: str, length: int = 34) -> str:
    if len(label) <= length:
        return label
    # Names of runs begin alike and differ at the end: seed, part, date.
    end = (length - 3) // 2
    return f"{label[: length - 3 - end]}...{label[-end:]}"
