"""The tracer against its naive Python twin, on one core: `python -m scripts.bench.solver`.

Per file: trace tokens and nodes (digits placed) per second, and the ratio to the twin, which
traces a few short puzzles of the same file. Both traces are compared outside the timed part.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tyro

from scripts.bench.harness import Report, best_time, load_grids, shared_puzzles
from solver.boards import Board
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, Tracer
from tests import naive


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Measure the tracer. Needs SUDOCOT_SHARED, the folder with the public puzzle lists."""

    max_puzzles: int = 4000
    """Puzzles of a file, evenly spread."""
    repeats: int = 3
    """Runs, of which the fastest counts."""
    twin_tokens: int = 20_000
    """Tokens that the naive twin traces, at least."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    rows = [_measure(path, config) for path in shared_puzzles()]
    Report(title="MRV tracer, one core", rows=rows, facts={"repeats": config.repeats}).publish(
        config.out
    )
    return 0


def _measure(path: Path, config: Config) -> dict[str, object]:
    board, grids = load_grids(path)
    grids = np.ascontiguousarray(grids[:: max(1, len(grids) // config.max_puzzles)])
    tracer = Tracer(board)
    out = np.empty(2 * DEFAULT_MAX_TOKENS, dtype=tracer.dtype)
    lengths = np.zeros(len(grids), dtype=np.int64)
    nodes = 0

    def trace_all() -> None:
        nonlocal nodes
        done = nodes = 0
        while done < len(grids):
            batch = tracer.trace_many(grids[done:], cap=DEFAULT_MAX_TOKENS, out=out)
            lengths[done : done + len(batch.ends)] = np.diff(batch.ends, prepend=0)
            nodes += int(batch.num_assignments.sum())
            done += len(batch.ends)

    tracer.trace_many(grids[:1], cap=DEFAULT_MAX_TOKENS, out=out)
    elapsed = best_time(trace_all, repeats=config.repeats)
    tokens = int(lengths.sum())
    twin_rate = _twin_rate(board, grids[np.argsort(lengths)], config)
    return {
        "file": path.name,
        "puzzles": len(grids),
        "tokens/puzzle": tokens / len(grids),
        "longest": int(lengths.max()),
        "M tokens/s": tokens / elapsed / 1e6,
        "M nodes/s": nodes / elapsed / 1e6,
        "twin tokens/s": twin_rate,
        "ratio": tokens / elapsed / twin_rate,
    }


def _twin_rate(board: Board, by_length: npt.NDArray[np.uint8], config: Config) -> float:
    """Tokens per second of the twin, on the shortest traces; checks that the traces agree."""
    tracer = Tracer(board)
    out = np.empty(DEFAULT_MAX_TOKENS, dtype=tracer.dtype)
    chosen, tokens = [], 0
    for grid in by_length:
        expected = tracer.trace_into(grid, out=out).tokens
        if naive.trace(board, grid.tolist())[0] != expected.tolist():
            raise AssertionError("the tracer and its twin differ")
        chosen.append(grid.tolist())
        tokens += len(expected)
        if tokens >= config.twin_tokens:
            break
    elapsed = best_time(lambda: [naive.trace(board, grid) for grid in chosen], repeats=1)
    return tokens / elapsed


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
