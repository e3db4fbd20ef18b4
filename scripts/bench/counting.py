"""Counting solutions on one core: `python -m scripts.bench.counting`.

Per file: puzzles counted per second (limit 2), the ratio to the naive twin, which counts a few
puzzles of the same file, and puzzles asked for a solution other than the known one. Then both for
puzzles that have lost one given, so that most are ambiguous. Counts are compared with those of the
twin outside the timed part.
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
from tests.solver.naive_counting import naive_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Measure counting. Needs SUDOCOT_SHARED, the folder with the public puzzle lists."""

    max_puzzles: int = 4000
    """Puzzles of a file, evenly spread."""
    repeats: int = 5
    """Runs, of which the fastest counts."""
    twin_puzzles: int = 3
    """Puzzles of a file that the naive twin counts."""
    seed: int = 0
    """Seed of the choice of givens to drop."""
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
    rate = _rate(board, grids, None, config)
    twin_rate = _twin_rate(board, grids, counts, config)
    solutions = np.array([trace(board, grid).solution for grid in grids])
    looser = _drop_one_given(grids, np.random.default_rng(config.seed))
    return {
        "file": path.name,
        "puzzles": len(grids),
        "unique": int(np.count_nonzero(counts == 1)),
        "counted/s": rate,
        "twin/s": twin_rate,
        "ratio": rate / twin_rate,
        "other/s": _rate(board, grids, solutions, config),
        "1 less: counted/s": _rate(board, looser, None, config),
        "1 less: other/s": _rate(board, looser, solutions, config),
    }


def _rate(board: Board, grids: Grid, solutions: Grid | None, config: Config) -> float:
    """Puzzles per second: counted, or asked for another solution than the known ones."""

    def work() -> None:
        if solutions is None:
            count_solutions_many(board, grids)
        else:
            has_other_solution(board, grids, solutions=solutions)

    return len(grids) / best_time(work, repeats=config.repeats)


def _twin_rate(board: Board, grids: Grid, counts: Any, config: Config) -> float:
    """Puzzles per second of the twin; checks that the counts agree."""
    chosen = np.linspace(0, len(grids) - 1, config.twin_puzzles).astype(np.int64)
    twins: list[int] = []
    elapsed = best_time(
        lambda: twins.extend(naive_count(board, grids[k], limit=2) for k in chosen), repeats=1
    )
    if twins != counts[chosen].tolist():
        raise AssertionError("counting and its twin differ")
    return len(chosen) / elapsed


def _drop_one_given(grids: Grid, rng: np.random.Generator) -> Grid:
    """Blank a random given of each grid."""
    looser = grids.copy()
    rank = np.where(grids > 0, rng.random(grids.shape), -1.0)
    looser[np.arange(len(grids)), rank.argmax(axis=1)] = 0
    return looser


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
