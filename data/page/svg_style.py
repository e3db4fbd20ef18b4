"""Style of SVG plots, and their colors in a page with light and dark mode.

Rendering is deterministic: equal data gives equal bytes, regardless of the user's matplotlib
settings.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, SOFT, GRID, GROUND = "#1b1d1f", "#585c61", "#dcdcd6", "#ffffff"
SERIES = (
    "#1f5fbf",
    "#b4530a",
    "#187544",
    "#7b3fc4",
    "#b3266a",
    "#0f7383",
    "#6d6400",
    "#585c60",
)
MARKERS = "osD^vPX*"
_CSS_VARIABLES = {
    INK: "--ink",
    SOFT: "--ink-soft",
    GRID: "--line",
    GROUND: "--panel",
    **{color: f"--series-{number}" for number, color in enumerate(SERIES, start=1)},
}
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sudocot",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,  # `$` in a name does not start a formula
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.facecolor": GROUND,
    "figure.facecolor": GROUND,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Use the style of this module in place of the user's matplotlib settings."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def to_svg(figure: Any) -> str:
    """Render a figure as SVG without timestamps and versions."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", dpi=160, metadata={"Date": None, "Creator": None})
    return re.sub(r"[ \t]+$", "", stream.getvalue().decode(), flags=re.MULTILINE)


def themed_svg(svg: str, *, prefix: str) -> str:
    """Prepare an SVG for inlining into a page.

    Replaces colors by CSS variables of the page, prefixes ids, and removes metadata and the XML
    declaration. Text content is not changed.

    Args:
        svg: Result of `to_svg`.
        prefix: Prefix that makes ids unique within the page.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)

    def fix_tag(tag: re.Match[str]) -> str:
        fixed = tag[0]
        for color, name in _CSS_VARIABLES.items():
            fixed = fixed.replace(color, f"var({name})")
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", fixed)

    return re.sub(r"<[^>]*>", fix_tag, body)
