"""Deterministic SVG plots with matplotlib.

The HTML page embeds the same SVG with colors replaced by CSS variables, for light and dark mode.
"""

from __future__ import annotations

import io
import re
from typing import Any

from compile_tm.measure.report.document import Plot, Series

_INK, _SOFT, _GRID, _GROUND = "#1b1d1f", "#585c61", "#dcdcd6", "#ffffff"
_COLOURS = ("#1f5fbf", "#b4530a", "#187544", "#7b3fc4", "#b3266a", "#0f7383", "#6d6400")
_PALETTE = {
    _INK: "--ink",
    _SOFT: "--ink-soft",
    _GRID: "--line",
    _GROUND: "--panel",
    **{colour: f"--series-{place}" for place, colour in enumerate(_COLOURS, 1)},
}
_MARKERS = "osD^vPX"
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sudocot",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,
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


def draw(plot: Plot) -> str:
    """Return the plot as SVG, without dates and versions."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with mpl.rc_context():
        mpl.rcdefaults()  # independent of the user's settings
        mpl.rcParams.update(_RC)
        rows = -(-len(plot.series) // 2)
        figure = Figure(figsize=(7.6, 3.7 + 0.22 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for place, series in enumerate(plot.series):
            axes.plot(series.x, series.y, label=series.label, **_look(series, place))
        axes.set(xlabel=plot.x_label, ylabel=plot.y_label, yscale=plot.y_scale)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if plot.y_scale == "log":
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter("")
        axes.grid(axis="y", linewidth=0.8)
        figure.legend(loc="outside upper left", ncols=2, fontsize=9)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"[ \t]+$", "", stream.getvalue().decode(), flags=re.MULTILINE)


def themed(svg: str, *, prefix: str) -> str:
    """Return an SVG for embedding in a page: CSS colors, prefixed ids, no XML declaration."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)

    def fix_tag(tag: re.Match[str]) -> str:
        fixed = tag[0]
        for colour, name in _PALETTE.items():
            fixed = fixed.replace(colour, f"var({name})")
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", fixed)

    return re.sub(r"<[^>]*>", fix_tag, body)


def _look(series: Series, place: int) -> dict[str, Any]:
    colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
    if series.style == "o":
        return {
            "color": colour,
            "linestyle": "none",
            "marker": marker,
            "markersize": 8,
            "markerfacecolor": "none",
        }
    return {"color": colour, "linestyle": series.style, "marker": marker, "markersize": 4}
