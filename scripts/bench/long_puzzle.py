"""Engine overhead on a puzzle of over a million CoT tokens: `python -m scripts.bench.long_puzzle`.

The engines decode it as SCoT with a scripted network that returns the solver's tokens, which
measures the engine alone: whether its cost per token grows with the number of segments. The result
is compared with the solver's segments outside the timed region.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from data.segments import Segments, split_into_segments
from eval.engines.contract import Caps, FinishReason, Request, Result
from eval.engines.scripted import ScriptedNetwork, solver_script
from eval.engines.segment import SegmentEngine
from eval.engines.verify.engine import VerifyEngine
from scripts.bench.harness import Report, load_grids, shared_puzzles
from solver.boards import Board, Grid
from solver.mrv.tracer import trace
from solver.vocabulary import Tokens

_SEGMENT_TOKENS = 512
_MAX_POSITIONS = 4_096
_MAX_TOKENS = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Decode a long puzzle. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    min_tokens: int = 1_000_000
    """Minimum CoT length; the first such 17-clue puzzle is used."""
    num_slots: int = 32
    """Slots of `verify`, which also runs with one slot."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    board, givens, segments = _long_puzzle(config.min_tokens)
    runs = [("segment", 1), ("verify", 1), ("verify", config.num_slots)]
    rows = [_measure(name, slots, board, givens, segments) for name, slots in runs]
    title = "One long puzzle, scripted network: microseconds per token"
    Report(title=title, rows=rows, facts={"segment_tokens": _SEGMENT_TOKENS}).publish(config.out)
    return 0


def _long_puzzle(min_tokens: int) -> tuple[Board, Grid, Segments]:
    board, grids = load_grids(shared_puzzles()[0])
    for givens in grids:
        result = trace(board, givens, max_tokens=_MAX_TOKENS)
        if result.solution is not None and len(result.tokens) >= min_tokens:
            ends = np.array([len(result.tokens)])
            segments = split_into_segments(
                board, result.tokens, ends, segment_tokens=_SEGMENT_TOKENS
            )
            return board, givens, segments
    raise ValueError(f"min_tokens: got {min_tokens}, allowed is less than {_MAX_TOKENS}")


def _measure(
    name: str, num_slots: int, board: Board, givens: Grid, segments: Segments
) -> dict[str, object]:
    num_givens = int(np.count_nonzero(givens))
    script = solver_script(board, num_givens=num_givens, segment_tokens=_SEGMENT_TOKENS)
    starts: list[float] = []
    network = ScriptedNetwork(board, _timed(script, starts), max_positions=_MAX_POSITIONS)
    engine = (
        SegmentEngine(network, num_slots=num_slots)
        if name == "segment"
        else VerifyEngine(network, num_slots=num_slots, segment_tokens=_SEGMENT_TOKENS)
    )
    caps = Caps(max_new_tokens=2 * _MAX_TOKENS, max_segment_tokens=2_048)
    request = Request(key="long", board=board, givens=givens, mode="scot", caps=caps)
    [result] = engine.decode([request])
    starts.append(time.perf_counter())
    _check(result, segments)
    lengths = np.array([len(tokens) for tokens in result.segments])
    tenth = len(lengths) // 10
    return {
        "engine": name,
        "slots": num_slots,
        "tokens": result.num_new_tokens,
        "segments": result.num_segments,
        "passes": engine.stats.num_forward_passes,
        "seconds": starts[-1] - starts[0],
        "first tenth": (starts[tenth] - starts[0]) / lengths[:tenth].sum() * 1e6,
        "last tenth": (starts[-1] - starts[-1 - tenth]) / lengths[-tenth:].sum() * 1e6,
    }


def _timed(script: Callable[[Tokens], Tokens], starts: list[float]) -> Callable[[Tokens], Tokens]:
    """Record the start time of each segment."""

    def answer(prompt: Tokens) -> Tokens:
        starts.append(time.perf_counter())
        return script(prompt)

    return answer


def _check(result: Result, segments: Segments) -> None:
    if result.finish_reason is not FinishReason.SOLVED or result.num_segments != len(segments.ends):
        raise AssertionError(
            f"ended by {result.finish_reason} after {result.num_segments} segments"
        )
    begins = np.append(0, segments.ends[:-1]) + segments.prompt_lengths
    for tokens, begin, end in zip(result.segments, begins, segments.ends, strict=True):
        if not np.array_equal(tokens, segments.tokens[begin:end]):
            raise AssertionError("the engine and the solver differ")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
