"""Plots of runs from their `metrics.jsonl`: loss and held-out solve rate over training tokens.

Runs that differ only in the seed can be drawn as one curve: the mean, with the range as a band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from data.runtime.files import OUR_MARK, staged_file
from data.runtime.plot_text import add_legend, installed_fonts, plain_text
from training.reporting.metrics import METRICS_FILE, Row, read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One metric of a run over its training tokens."""

    tokens: Floats
    """Non-padding training tokens, shape (n,)."""
    values: Floats
    """Values of the metric, shape (n,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCurves:
    """Curves of a run."""

    loss: Curve
    """Mean training loss since the previous row."""
    solve_rate: Curve
    """Share of held-out puzzles whose every segment matches; empty without evaluations."""


def read_curves(run: Path) -> RunCurves:
    """Read the curves of a run folder.

    Raises:
        OSError: the folder has no metrics.
        ValueError: no row of training yet, or a malformed line; the message names it.
    """
    path = run / METRICS_FILE
    rows = read_metrics(path)
    train = [row for row in rows if row["kind"] == "train"]
    if not rows and path.stat().st_size:
        raise ValueError(f"{path}: damaged, has no complete row")
    if not train:
        raise ValueError(f"{path}: no step of training is recorded yet")
    evaluations = [row for row in rows if row["kind"] == "eval"]
    return RunCurves(
        loss=_curve(train, "num_tokens", "loss"),
        solve_rate=_curve(evaluations, "train_tokens", "solve_rate"),
    )


def _curve(rows: Sequence[Row], tokens: str, value: str) -> Curve:
    columns = [[float(row[name] or 0.0) for row in rows] for name in (tokens, value)]
    return Curve(tokens=np.array(columns[0]), values=np.array(columns[1]))


def tokens_to_reach(curve: Curve, level: float, *, from_above: bool) -> float | None:
    """Return the tokens at the first point at or beyond `level`; None if it is never reached."""
    reached = curve.values <= level if from_above else curve.values >= level
    return float(curve.tokens[np.argmax(reached)]) if reached.any() else None


def draw_curves(groups: Mapping[str, Sequence[RunCurves]], path: Path, *, title: str) -> None:
    """Draw loss and solve rate of every group to a file; its suffix selects SVG, PNG or PDF.

    Raises:
        ValueError: matplotlib does not support the suffix.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.removeprefix(".")
    supported = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if kind not in supported:
        raise ValueError(f"{path}: got ending {kind!r}, allowed are {', '.join(sorted(supported))}")
    metadata = {
        "svg": {"Creator": OUR_MARK, "Date": None},
        "pdf": {"Creator": OUR_MARK, "CreationDate": None},
        "png": {"Software": OUR_MARK},
    }.get(kind, {})
    mark = OUR_MARK if metadata else None
    # Without a salt, ids inside an SVG are random.
    with rc_context({"font.family": installed_fonts(), "svg.hashsalt": "sudocot"}):
        figure = _draw(groups, title=title)
        with staged_file(path, mark=mark) as staged:
            figure.savefig(staged, format=kind, dpi=150, metadata=metadata)


def _draw(groups: Mapping[str, Sequence[RunCurves]], *, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    lines, labels = [], []
    for index, (name, runs) in enumerate(groups.items()):
        color = f"C{index}"  # the same in both axes, even if a group has no solve rate
        for axes, curves, marker in (
            (left, [run.loss for run in runs], ""),
            # A short run has a single evaluation, so points are marked.
            (right, [run.solve_rate for run in runs if run.solve_rate.tokens.size], "."),
        ):
            if not curves:
                continue
            tokens, low, mean, high = _band(curves)
            (line,) = axes.plot(tokens / 1e6, mean, color=color, marker=marker)
            if axes is left:
                lines.append(line)
                labels.append(f"{name} (n = {len(runs)})")
            if len(curves) > 1:
                axes.fill_between(tokens / 1e6, low, high, color=color, alpha=0.2)
    left.set(yscale="log", ylabel="loss in nats per loss token")
    right.set(ylim=(0.0, 1.02), ylabel="held-out puzzles that match entirely")
    for axes in (left, right):
        axes.set_xlabel("million tokens")
        axes.grid(alpha=0.3)
    add_legend(left, lines, labels)
    figure.suptitle(plain_text(title))
    return figure


def _band(curves: Sequence[Curve]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the tokens covered by all curves, and the minimum, mean and maximum there."""
    start = max(curve.tokens[0] for curve in curves)
    end = min(curve.tokens[-1] for curve in curves)
    tokens = curves[0].tokens
    tokens = tokens[(start <= tokens) & (tokens <= end)]
    values = np.stack([np.interp(tokens, curve.tokens, curve.values) for curve in curves])
    return tokens, values.min(axis=0), values.mean(axis=0), values.max(axis=0)
