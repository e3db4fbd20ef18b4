"""Shared parts of the benchmarks: repeated timing, machine facts, table and JSON output."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from data.runtime.cpus import available_cpus
from data.runtime.files import publish_file, to_json
from solver.boards import Board
from solver.puzzles import read_puzzles

_WIDTH = 160
PUBLIC_FILES = (
    "17_clue.txt",
    "forum_hardest_1905_11plus.txt",
    "magictour_top1465.txt",
    "serg_benchmark.txt",
    "forum_hardest_1106.txt",
)


def shared_puzzles() -> list[Path]:
    """Return the files of public puzzles in `$SUDOCOT_SHARED/puzzles`.

    Raises:
        FileNotFoundError: the variable is not set, or a file is missing.
    """
    folder = Path(os.environ.get("SUDOCOT_SHARED", "")) / "puzzles"
    paths = [folder / name for name in PUBLIC_FILES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"SUDOCOT_SHARED: {folder} does not contain {', '.join(missing)}")
    return paths


def load_grids(path: Path) -> tuple[Board, npt.NDArray[np.uint8]]:
    """Return the board and all puzzles of a file, shape (n, num_cells)."""
    reader = read_puzzles(path)
    return reader.board, np.concatenate([block.grids for block in reader])


def best_time(work: Callable[[], object], *, repeats: int) -> float:
    """Return the shortest wall time of several runs, in seconds; the caller warms up before."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def machine_facts() -> dict[str, Any]:
    """Return the processor, the number of available CPUs, and library versions."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = lines[0].partition(":")[2].strip() if lines else model
    return {
        "processor": model,
        "cpus": available_cpus()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "pyarrow")},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Table of a benchmark; all rows have the same columns."""

    title: str
    """Title."""
    rows: Sequence[dict[str, Any]]
    """Values by column."""
    facts: dict[str, Any]
    """Further entries of the JSON file."""

    def publish(self, path: Path | None) -> None:
        """Print the table, and write it to `path` as JSON if given."""
        table = Table(title=self.title, title_justify="left")
        for name in self.rows[0]:
            is_text = isinstance(self.rows[0][name], str)
            table.add_column(name, justify="left" if is_text else "right")
        for row in self.rows:
            table.add_row(*(_format(value) for value in row.values()))
        console = Console()
        if not console.is_terminal:
            console.width = _WIDTH
        console.print(table)
        self.write(path)

    def write(self, path: Path | None) -> None:
        """Write the table to `path` as JSON if given."""
        if path is not None:
            record = {
                "title": self.title,
                "machine": machine_facts(),
                **self.facts,
                "rows": list(self.rows),
            }
            publish_file(path, to_json(record))


def _format(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
