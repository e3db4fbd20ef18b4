"""Throughput of the tracer on one core: `python -m scripts.bench.solver`.

Reports trace tokens and nodes (digits placed) per second for each file of public puzzles.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from scripts.bench.harness import Report, best_time, load_grids, shared_puzzles
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark the tracer. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    max_puzzles: int = 4000
    """Puzzles per file, evenly spaced."""
    repeats: int = 3
    """Number of runs; the fastest is reported."""
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
    return {
        "file": path.name,
        "puzzles": len(grids),
        "tokens/puzzle": tokens / len(grids),
        "longest": int(lengths.max()),
        "M tokens/s": tokens / elapsed / 1e6,
        "M nodes/s": nodes / elapsed / 1e6,
    }


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
