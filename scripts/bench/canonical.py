"""Throughput of canonical forms and random symmetries: `python -m scripts.bench.canonical`.

Reports for each file of public puzzles, on one core: the number of equivalence classes, canonical
forms of puzzles and of their solutions per second, and random symmetries applied per second. A
second table has the time per form of grids with many automorphisms, the slowest case. Forms are
timed on random images, and compared with the forms of the originals outside the timed region.
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

_NUM_IMAGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark canonical forms. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    num_solutions: int = 500
    """Puzzles per file, evenly spaced, whose solutions are measured too."""
    repeats: int = 5
    """Number of runs; the fastest is reported."""
    seed: int = 0
    """Seed of the random symmetries."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    files = [_measure_file(path, config) for path in shared_puzzles()]
    symmetric = [
        _measure_symmetric(board, name, grid, config)
        for board in BOARDS.values()
        for name, grid in _symmetric_grids(board).items()
    ]
    Report(title="Grids with many automorphisms", rows=symmetric, facts={}).publish(None)
    facts = {"repeats": config.repeats, "seed": config.seed, "symmetric": symmetric}
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
    return {
        "file": path.name,
        "puzzles": len(grids),
        "classes": len(np.unique(forms, axis=0)),
        "forms/s": rate,
        "solved/s": solution_rate,
        "mapped/s": len(grids) / map_s,
    }


def _symmetric_grids(board: Board) -> dict[str, Grid]:
    rows, cols = np.divmod(np.arange(board.num_cells), board.side)
    shifts = board.box_cols * (rows % board.box_rows) + rows // board.box_rows
    full = (shifts + cols) % board.side + 1
    grids = {
        "empty": 0 * full,
        "full": full,
        "one digit": np.where(full == 1, 1, 0),
        "one row": np.where(rows == 0, full, 0),
        "diagonal": np.where(rows == cols, rows + 1, 0),
    }
    return {name: grid.astype(np.uint8) for name, grid in grids.items()}


def _measure_symmetric(board: Board, name: str, grid: Grid, config: Config) -> dict[str, Any]:
    rate, _ = _forms_per_s(board, np.tile(grid, (_NUM_IMAGES, 1)), config)
    return {"board": board.name, "grid": name, "us/form": 1e6 / rate}


def _forms_per_s(board: Board, grids: Grid, config: Config) -> tuple[float, Grid]:
    """Return forms per second of random images of `grids`, and the forms of `grids`."""
    images = augment(board, grids, seeds=_seeds(len(grids), config))
    forms = canonical_forms(board, grids)
    if not np.array_equal(canonical_forms(board, images), forms):
        raise AssertionError("a grid and its image have different canonical forms")
    elapsed = best_time(lambda: canonical_forms(board, images), repeats=config.repeats)
    return len(grids) / elapsed, forms


def _seeds(num: int, config: Config) -> np.ndarray:
    return np.random.default_rng(config.seed).integers(2**64, size=num, dtype=np.uint64)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
