"""Throughput of the data set builder: `python -m scripts.bench.build`.

For each file and mode: wall time of a build (read, trace, segment, write, flush), traced tokens per
second, and the ratio to tracing alone with the same number of threads. Traces stop at N tokens in
both; truncated traces count. Each build runs in a separate process, to measure its peak memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.builder.shards import BUFFER_TOKENS
from data.puzzle_sources.sources import open_files
from data.runtime.cpus import available_cpus
from scripts.bench.harness import Report, best_time, load_grids, shared_puzzles
from solver.boards import Board
from solver.mrv.tracer import Status, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark the builder. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    max_cot_length: int = 16384
    """Cut-off N."""
    repeats: int = 3
    """Number of runs; the fastest is reported."""
    work_dir: Path | None = None
    """Folder of the data sets (default: the temporary folder)."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    workers = available_cpus()[0]
    paths = shared_puzzles()
    rows = []
    for inputs in [*([path] for path in paths), paths]:
        grids = np.concatenate([load_grids(path)[1] for path in inputs])
        board = load_grids(inputs[0])[0]
        tokens, bare_s = _trace_bare(board, grids, config, workers=workers)
        rows += [
            _measure(inputs, mode, check_unique, tokens, bare_s, config)
            for mode in ("cot", "scot")
            for check_unique in (False, True)
        ]
    facts = {"workers": workers, "repeats": config.repeats, "max_cot_length": config.max_cot_length}
    Report(title=f"data build, {workers} threads", rows=rows, facts=facts).publish(config.out)
    return 0


def _trace_bare(
    board: Board, grids: npt.NDArray[np.uint8], config: Config, *, workers: int
) -> tuple[int, float]:
    """Return the tokens of all traces, and the time of tracing alone, one tracer per worker."""
    cap = config.max_cot_length
    parts = [np.ascontiguousarray(grids[k::workers]) for k in range(workers)]
    tracers = [Tracer(board) for _ in parts]
    buffers = [np.empty(max(BUFFER_TOKENS, cap), dtype=tracer.dtype) for tracer in tracers]

    def trace_part(k: int) -> int:
        tokens = done = 0
        while done < len(parts[k]):
            batch = tracers[k].trace_many(parts[k][done:], cap=cap, out=buffers[k])
            tokens += len(batch.tokens) + cap * int((batch.statuses == Status.CAPPED).sum())
            done += len(batch.ends)
        return tokens

    tracers[0].trace_many(parts[0][:1], cap=cap, out=buffers[0])
    with ThreadPoolExecutor(workers) as pool:
        tokens = sum(pool.map(trace_part, range(workers)))
        elapsed = best_time(
            lambda: list(pool.map(trace_part, range(workers))), repeats=config.repeats
        )
    return tokens, elapsed


def _measure(
    inputs: list[Path],
    mode: str,
    check_unique: bool,
    tokens: int,
    bare_s: float,
    config: Config,
) -> dict[str, Any]:
    runs = []
    for _ in range(config.repeats):
        with tempfile.TemporaryDirectory(dir=config.work_dir) as folder:
            arguments = [mode, str(int(check_unique)), str(config.max_cot_length), folder]
            run = subprocess.run(
                [sys.executable, "-m", "scripts.bench.build", "--one", *arguments, *inputs],
                check=True,
                capture_output=True,
                text=True,
            )
        runs.append(json.loads(run.stdout.splitlines()[-1]))
    best = min(runs, key=lambda run: run["seconds"])
    return {
        "file": inputs[0].name if len(inputs) == 1 else "all",
        "mode": mode,
        "unique check": str(check_unique),
        "seconds": best["seconds"],
        "M traced/s": tokens / best["seconds"] / 1e6,
        "share of bare": bare_s / best["seconds"],
        "kept": best["kept"],
        "M tokens": best["tokens"] / 1e6,
        "MB/s": best["bytes"] / best["seconds"] / 1e6,
        "bytes/token": best["bytes"] / max(best["tokens"], 1),
        "peak MB": best["peak_mb"],
    }


def _build_once(mode: Any, check_unique: str, cutoff: str, folder: str, *inputs: str) -> None:
    """Build in this process, after a small build that loads the compiled kernels."""
    config = BuildConfig(mode=mode, check_unique=check_unique == "1", max_cot_length=int(cutoff))
    warm = Path(folder) / "warm.txt"
    with Path(inputs[0]).open() as file:
        warm.write_text("".join(line for line, _ in zip(file, range(20), strict=False)))
    for name, files in (("warm", (str(warm),)), ("out", inputs)):
        start = time.perf_counter()
        source = open_files(files, board=None, split=None, revision=None)
        manifest = build(source, Path(folder) / name, config=config)
        elapsed = time.perf_counter() - start
    assert manifest is not None
    shards = [(Path(folder) / "out" / shard.name).stat().st_size for shard in manifest.shards]
    result = {
        "seconds": elapsed,
        "kept": manifest.num_puzzles,
        "tokens": manifest.num_tokens,
        "bytes": sum(shards),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _build_once(*sys.argv[2:])
    else:
        sys.exit(main(tyro.cli(Config)))
