"""Teacher forcing by the sparse runtime: `python -m scripts.bench.compiled_prediction`.

The compiled 9x9 solver predicts all tokens of SCoT segments of public puzzles, in one process and
in several, and a compiled busy beaver those of one sequence. Each is measured in blocks of 64
positions and, on the first tokens, token by token; predictions are compared with the solver and
with decoding. All times are CPU time: the rate of several processes is that of as many idle cores.
"""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from compile_tm.constructions.compiled import compile_machine
from compile_tm.machines.examples import busy_beaver
from compile_tm.machines.folding import fold
from compile_tm.program.program import Program
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku
from scripts.bench.compiled_sudoku import Segment, public_segments
from scripts.bench.harness import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Measure predictions. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    lengths: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    """Numbers of tokens."""
    processes: int = 2
    """Number of processes of the second measurement at each length."""
    segment_tokens: int = 512
    """Trace tokens per SCoT segment."""
    by_token: int = 10_000
    """Number of tokens that are also predicted token by token, for each process."""
    repeats: int = 3
    """Number of runs of up to 150,000 tokens; the fastest is reported."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark; return 0 if all predictions are equal, else 1."""
    rows = []
    compiled = compile_sudoku(
        BOARDS["9x9"], mode="scot", bits=11, segment_tokens=config.segment_tokens
    )
    segments = _first(config, max(config.lengths))
    for length in config.lengths:
        count = np.searchsorted(np.cumsum([len(ids) for ids, _ in segments]), length) + 1
        for processes in (1, config.processes):
            row = _measure(config, compiled.program, segments[:count], processes)
            rows.append({"tokens of": "9x9 SCoT segments", **row})
    machine = compile_machine(fold(busy_beaver(5)), mode="cot", bits=20, reachable_only=True)
    prompt = machine.vocabulary.input_ids("")
    decoder = SparseTransformer.from_program(machine.program)
    ids = decoder.generate([prompt], stop=(), max_positions=max(config.lengths))[0]
    for length in config.lengths:
        row = _measure(config, machine.program, [(ids[: length + 1], len(prompt))], 1)
        rows.append({"tokens of": "one sequence", **row})
    Report(
        title="Teacher forcing, sparse runtime",
        rows=rows,
        facts={"segment_tokens": config.segment_tokens, "repeats": config.repeats},
    ).publish(config.out)
    return 1 if any(row["wrong"] for row in rows) else 0


def _first(config: Config, num_tokens: int) -> list[Segment]:
    """Segments with at least `num_tokens` tokens."""
    segments: list[Segment] = []
    total = 0
    for own in public_segments(config.segment_tokens):
        segments += own
        total += sum(len(ids) for ids, _ in own)
        if total >= num_tokens:
            break
    return segments


def _measure(
    config: Config, program: Program, segments: list[Segment], processes: int
) -> dict[str, Any]:
    num_tokens = sum(len(ids) - 1 for ids, _ in segments)
    # In blocks and token by token; the latter reads `config.by_token` tokens only.
    repeats = (config.repeats if num_tokens <= 150_000 else 1, config.repeats)
    shares = [segments[n::processes] for n in range(processes)]
    arguments = (
        [program] * processes,
        shares,
        [config.by_token] * processes,
        [repeats] * processes,
    )
    if processes == 1:
        results = list(map(_predict, *arguments))
    else:
        with ProcessPoolExecutor(processes) as pool:
            results = list(pool.map(_predict, *arguments))
    rate, naive = (sum(result[n] for result in results) for n in (0, 1))
    return {
        "tokens": num_tokens,
        "processes": processes,
        "tokens/s": round(rate),
        "token by token/s": round(naive),
        "ratio": round(rate / naive, 1),
        "wrong": sum(result[2] for result in results),
    }


def _predict(
    program: Program, segments: list[Segment], by_token: int, repeats: tuple[int, int]
) -> tuple[float, float, int]:
    """Return tokens per CPU second in blocks and token by token, and the number of wrong tokens."""
    model = SparseTransformer.from_program(program)
    ends = itertools.accumulate(len(ids) for ids, _ in segments)
    few = [segment for segment, end in zip(segments, ends, strict=True) if end <= by_token]
    few = few or [(segments[0][0][: by_token + 1], segments[0][1])]
    model.predict(few[0][0][:2])
    model.predict(few[0][0][:2], is_blocked=False)
    best, wrong = [0.0, 0.0], 0
    for n, own in enumerate((segments, few)):
        for _ in range(repeats[n]):
            start = time.process_time()
            predicted = [model.predict(ids[:-1], is_blocked=n == 0) for ids, _ in own]
            seconds = time.process_time() - start
            best[n] = max(best[n], sum(map(len, predicted)) / seconds)
            wrong += sum(
                int((said[num - 1 :] != ids[num:]).sum())
                for said, (ids, num) in zip(predicted, own, strict=True)
            )
    return best[0], best[1], wrong


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
