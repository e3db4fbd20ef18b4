"""Plots of a report, drawn with matplotlib in the deterministic style of `svg_style`."""

from __future__ import annotations

from typing import Any

from compile_tm.measure.report.document import Plot, Series
from data.page.svg_style import MARKERS, SERIES, plot_style, to_svg

_NUM_LOOKS = 7  # Colors and markers repeat after this number of series.


def draw(plot: Plot) -> str:
    """Return a plot as SVG without timestamps and versions."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with plot_style():
        rows = -(-len(plot.series) // 2)
        figure = Figure(figsize=(7.6, 3.7 + 0.22 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for index, series in enumerate(plot.series):
            axes.plot(series.x, series.y, label=series.label, **_look(series, index))
        axes.set(xlabel=plot.x_label, ylabel=plot.y_label, yscale=plot.y_scale)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if plot.y_scale == "log":
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter("")
        axes.grid(axis="y", linewidth=0.8)
        figure.legend(loc="outside upper left", ncols=2, fontsize=9)
        return to_svg(figure)


def _look(series: Series, index: int) -> dict[str, Any]:
    color, marker = SERIES[index % _NUM_LOOKS], MARKERS[index % _NUM_LOOKS]
    if series.style == "o":
        return {
            "color": color,
            "linestyle": "none",
            "marker": marker,
            "markersize": 8,
            "markerfacecolor": "none",
        }
    return {"color": color, "linestyle": series.style, "marker": marker, "markersize": 4}
