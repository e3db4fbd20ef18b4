"""Throughput of puzzle generation and mining: `python -m scripts.bench.generator`.

For each board: minimal puzzles per second on one core and on all cores, and statistics of the
puzzles, namely givens, distinct puzzles, and rectangles of a solved grid whose two digits can be
exchanged, which measure the deviation from uniform sampling (`solver.generation.generator`). For
mining: puzzles per second on one core and the lengths reached, by range of CoT lengths on 9x9.
"""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from data.runtime.cpus import available_cpus
from scripts.bench.harness import Report, best_time
from solver.boards import BOARDS, Board, Grid
from solver.generation.generator import generate_puzzles
from solver.generation.mining import mine_puzzles

_COUNTS = {"4x4": 20_000, "6x6": 10_000, "9x9": 4000, "16x16": 40}
_RANGES = {(328, 1000): 300, (1000, 10_000): 200, (10_000, 100_000): 30, (100_000, 300_000): 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark the generator."""

    share: float = 1.0
    """Fraction of the default number of puzzles, which takes about a minute."""
    repeats: int = 3
    """Number of runs; the fastest is reported. Puzzles are mined once."""
    seed: int = 0
    """Seed of the puzzles."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    mined = [_measure_range(bounds, count, config) for bounds, count in _RANGES.items()]
    Report(title="Mined 9x9 puzzles, one core", rows=mined, facts={}).publish(None)
    rows = [_measure_board(BOARDS[name], count, config) for name, count in _COUNTS.items()]
    facts = {"repeats": config.repeats, "seed": config.seed, "mined": mined}
    Report(title="Minimal puzzles", rows=rows, facts=facts).publish(config.out)
    return 0


def _measure_board(board: Board, full_count: int, config: Config) -> dict[str, Any]:
    count = max(2, int(full_count * config.share))
    workers = available_cpus()[0]
    puzzles = generate_puzzles(board, seed=config.seed, count=count)

    def make(start: int, part: int) -> None:
        generate_puzzles(board, seed=config.seed, start=start, count=part)

    one_s = best_time(lambda: make(0, count), repeats=config.repeats)
    with ThreadPoolExecutor(workers) as pool:
        starts = [k * count for k in range(workers)]
        all_s = best_time(
            lambda: list(pool.map(make, starts, itertools.repeat(count))), repeats=config.repeats
        )
    return {
        "board": board.name,
        "puzzles/s": count / one_s,
        f"{workers} threads": workers * count / all_s,
        "givens": float(np.count_nonzero(puzzles.grids, axis=1).mean()),
        "distinct": len(np.unique(puzzles.grids, axis=0)) / count,
        "exchanges/grid": _mean_exchanges(board, puzzles.solutions),
    }


def _mean_exchanges(board: Board, solutions: Grid) -> float:
    """Return the mean number of rectangles {a, b} x {c, d} whose two digits can be exchanged.

    Such a rectangle covers two boxes: either its rows share a band or its columns share a stack.
    """
    grids = solutions.reshape(len(solutions), board.side, board.side)
    num_exchanges = np.zeros(len(grids))
    for a, b in itertools.combinations(range(board.side), 2):
        for c, d in itertools.combinations(range(board.side), 2):
            shares_band = a // board.box_rows == b // board.box_rows
            if shares_band != (c // board.box_cols == d // board.box_cols):
                crosses = grids[:, a, c] == grids[:, b, d]
                num_exchanges += crosses & (grids[:, a, d] == grids[:, b, c])
    return float(num_exchanges.mean())


def _measure_range(bounds: tuple[int, int], full_count: int, config: Config) -> dict[str, Any]:
    board, (least, most) = BOARDS["9x9"], bounds
    count = max(1, int(full_count * config.share))

    def mine(number: int) -> Any:
        return mine_puzzles(
            board, seed=config.seed, count=number, min_cot_length=least, max_cot_length=most
        )

    mine(1)
    mined: list[Any] = []
    elapsed = best_time(lambda: mined.append(mine(count)), repeats=1)
    lengths = mined[0].cot_lengths
    return {
        "CoT lengths": f"{least:,} to {most:,}",
        "puzzles": count,
        "puzzles/s": count / elapsed,
        "within": float(((lengths >= least) & (lengths <= most)).mean()),
        "shortest": int(lengths.min()),
        "median": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "givens": float(np.count_nonzero(mined[0].grids, axis=1).mean()),
    }


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
