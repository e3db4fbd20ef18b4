"""Throughput of solution counting on one core: `python -m scripts.bench.counting`.

Reports puzzles per second for each file of public puzzles: counting with limit 2, and the search
for a solution other than a known one; both also with one given removed from each puzzle, which
makes most of them ambiguous.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from scripts.bench.harness import Report, best_time, load_grids, shared_puzzles
from solver.boards import Board, Grid
from solver.generation.counting import count_solutions_many, has_other_solution
from solver.mrv.tracer import trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark counting. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    max_puzzles: int = 4000
    """Puzzles per file, evenly spaced."""
    repeats: int = 5
    """Number of runs; the fastest is reported."""
    seed: int = 0
    """Seed of the choice of givens to remove."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    rows = [_measure(path, config) for path in shared_puzzles()]
    facts = {"repeats": config.repeats, "seed": config.seed}
    Report(title="Counting solutions, one core", rows=rows, facts=facts).publish(config.out)
    return 0


def _measure(path: Path, config: Config) -> dict[str, Any]:
    board, grids = load_grids(path)
    grids = np.ascontiguousarray(grids[:: max(1, len(grids) // config.max_puzzles)])
    counts = count_solutions_many(board, grids)
    solutions = np.array([trace(board, grid).solution for grid in grids])
    looser = _drop_one_given(grids, np.random.default_rng(config.seed))
    return {
        "file": path.name,
        "puzzles": len(grids),
        "unique": int(np.count_nonzero(counts == 1)),
        "counted/s": _rate(board, grids, None, config),
        "other/s": _rate(board, grids, solutions, config),
        "1 less: counted/s": _rate(board, looser, None, config),
        "1 less: other/s": _rate(board, looser, solutions, config),
    }


def _rate(board: Board, grids: Grid, solutions: Grid | None, config: Config) -> float:
    """Return puzzles per second: counted, or searched for another than the given solutions."""

    def work() -> None:
        if solutions is None:
            count_solutions_many(board, grids)
        else:
            has_other_solution(board, grids, solutions=solutions)

    return len(grids) / best_time(work, repeats=config.repeats)


def _drop_one_given(grids: Grid, rng: np.random.Generator) -> Grid:
    """Remove a random given of each grid."""
    looser = grids.copy()
    rank = np.where(grids > 0, rng.random(grids.shape), -1.0)
    looser[np.arange(len(grids)), rank.argmax(axis=1)] = 0
    return looser


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
