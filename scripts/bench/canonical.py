"""Canonical forms and random symmetries on one core: `python -m scripts.bench.canonical`.

Per file: the number of classes, forms of its puzzles and of their solutions (solved) per second,
puzzles mapped by random symmetries per second, and the ratio to the naive twin, which tries all
3,359,232 ways to place the lines of a puzzle. Then the time of a form for grids that leave many
ties. Forms are timed on random images; outside the timed part they are checked to be those of the
grids themselves, and the twin checks that a form is equivalent to its puzzle.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from scripts.bench.harness import Report, best_time, load_grids, shared_puzzles
from solver.boards import BOARDS, Board, Grid
from solver.mrv.tracer import trace
from solver.symmetry.canonical import canonical_forms
from solver.symmetry.transforms import augment
from tests.solver.naive_canonical import naive_form, tied_grids

_NUM_IMAGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Measure canonical forms. Needs SUDOCOT_SHARED, the folder with the public puzzle lists."""

    num_solutions: int = 500
    """Puzzles of a file, evenly spread, whose solutions are measured too."""
    repeats: int = 5
    """Runs, of which the fastest counts."""
    seed: int = 0
    """Seed of the random symmetries."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    files = [_measure_file(path, config) for path in shared_puzzles()]
    ties = [
        _measure_ties(board, name, grid, config)
        for board in BOARDS.values()
        for name, grid in tied_grids(board).items()
    ]
    Report(title="Grids that leave many ties", rows=ties, facts={}).publish(None)
    facts = {"repeats": config.repeats, "seed": config.seed, "ties": ties}
    Report(title="Canonical forms, one core", rows=files, facts=facts).publish(config.out)
    return 0


def _measure_file(path: Path, config: Config) -> dict[str, Any]:
    board, grids = load_grids(path)
    rate, forms = _forms_per_s(board, grids, config)
    spread = grids[:: max(1, len(grids) // config.num_solutions)]
    solutions = np.array([trace(board, grid).solution for grid in spread])
    solution_rate, _ = _forms_per_s(board, solutions, config)
    seeds = _seeds(len(grids), config)
    map_s = best_time(lambda: augment(board, grids, seeds=seeds), repeats=config.repeats)
    twins: list[bytes] = []
    twin_s = best_time(lambda: twins.append(naive_form(board, grids[0])), repeats=1)
    if naive_form(board, forms[0]) != twins[0]:
        raise AssertionError(f"{path.name}: the form is not equivalent to its puzzle")
    return {
        "file": path.name,
        "puzzles": len(grids),
        "classes": len(np.unique(forms, axis=0)),
        "forms/s": rate,
        "solved/s": solution_rate,
        "mapped/s": len(grids) / map_s,
        "twin s/form": twin_s,
        "ratio": rate * twin_s,
    }


def _measure_ties(board: Board, name: str, grid: Grid, config: Config) -> dict[str, Any]:
    rate, _ = _forms_per_s(board, np.tile(grid, (_NUM_IMAGES, 1)), config)
    return {"board": board.name, "grid": name, "us/form": 1e6 / rate}


def _forms_per_s(board: Board, grids: Grid, config: Config) -> tuple[float, Grid]:
    """Time the forms of random images of `grids`; check that they are those of `grids`."""
    images = augment(board, grids, seeds=_seeds(len(grids), config))
    forms = canonical_forms(board, grids)
    if not np.array_equal(canonical_forms(board, images), forms):
        raise AssertionError("a grid and its image differ in form")
    elapsed = best_time(lambda: canonical_forms(board, images), repeats=config.repeats)
    return len(grids) / elapsed, forms


def _seeds(num: int, config: Config) -> np.ndarray:
    return np.random.default_rng(config.seed).integers(2**64, size=num, dtype=np.uint64)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
