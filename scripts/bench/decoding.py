"""Engines compared: `python -m scripts.bench.decoding --model FOLDER --puzzles FILE`.

Every engine decodes the same puzzles of the file with the same number of slots, in one process, in
turns; the fastest turn of each counts, and compiling and loading do not. Ratios are to the first
engine. Peak memory is that of the process during a turn, above what it held before the engine was
loaded. `same` counts the puzzles whose tokens are those of the first engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from data.cpus import available_cpus
from data.precision import get_precision
from eval.contract import Caps, EndedBy, Engine, Request, Result, paper_caps
from eval.engines.factory import ENGINES, make_engine
from eval.model_folder import ModelFolder
from scripts.bench.harness import Report, load_grids

_WARM_UP = Caps(max_new_tokens=32, max_segment_tokens=32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare engines on one model and one list of puzzles."""

    model: Path
    """Model folder."""
    puzzles: Path
    """File of puzzles for the model's board."""
    engines: tuple[str, ...] = ("hf", "segment", "verify")
    """Engines; ratios are to the first one."""
    num_puzzles: int = 256
    """Puzzles, picked at random from the file; all when it has fewer."""
    seed: int = 0
    """Seed of the choice."""
    num_slots: int = 32
    """Segments in flight, or rows of a batch."""
    precision: str = "fp32"
    """Precision policy."""
    max_new_tokens: int | None = None
    """Cap on the tokens of a puzzle; None takes the paper's."""
    max_segment_tokens: int | None = None
    """Cap on the tokens of an SCoT segment; None takes the paper's."""
    num_turns: int = 2
    """Turns of each engine, of which the fastest counts."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        unknown = set(self.engines) - set(ENGINES)
        if unknown or not self.engines:
            raise ValueError(f"engines: got {self.engines}, allowed are {', '.join(ENGINES)}")
        for name in ("num_puzzles", "num_slots", "num_turns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One pass of an engine over all puzzles."""

    results: dict[str, Result]
    """By key."""
    duration_s: float
    """Wall time."""
    num_forward_passes: int
    """Calls of the model."""
    peak_bytes: int
    """Most memory of the process, or of the GPU, during the turn."""

    @property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return sum(result.num_new_tokens for result in self.results.values())

    @property
    def speed(self) -> float:
        """Generated tokens a second."""
        return self.num_tokens / self.duration_s


def main(config: Config) -> int:
    """Run the benchmark."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(available_cpus()[0])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = ModelFolder.open(config.model)
    requests = load_requests(folder, config)
    best: dict[str, Turn] = {}
    for name in config.engines:
        before = memory_in_use(device)
        engine = make_engine(
            name,
            folder,
            precision=get_precision(config.precision),
            device=device,
            num_slots=config.num_slots,
        )
        list(engine.decode([replace(r, caps=_WARM_UP) for r in requests[: config.num_slots]]))
        turns = [take_turn(engine, requests, device) for _ in range(config.num_turns)]
        fastest = max(turns, key=lambda turn: turn.speed)
        best[name] = replace(fastest, peak_bytes=fastest.peak_bytes - before)
        del engine
    facts = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "precision": config.precision,
        "mode": folder.facts.mode,
        "weights_digest": folder.weights_digest,
        "num_slots": config.num_slots,
        "num_puzzles": len(requests),
    }
    title = (
        f"decoding {config.model.name} ({folder.facts.board} {folder.facts.mode}), "
        f"{len(requests)} puzzles, {config.num_slots} slots, {config.precision}"
    )
    Report(title=title, rows=table(best), facts=facts).publish(config.out)
    return 0


def load_requests(folder: ModelFolder, config: Config) -> list[Request]:
    """Requests for a random choice of the puzzles.

    Raises:
        ValueError: the puzzles are of another board than the model.
    """
    board, grids = load_grids(config.puzzles)
    if board != folder.board:
        raise ValueError(f"puzzles: got {board.name}, allowed is {folder.facts.board}")
    paper = paper_caps(folder.facts.mode)
    caps = Caps(
        max_new_tokens=config.max_new_tokens or paper.max_new_tokens,
        max_segment_tokens=config.max_segment_tokens or paper.max_segment_tokens,
    )
    picked = np.random.default_rng(config.seed).permutation(len(grids))[: config.num_puzzles]
    return [
        Request(
            key=f"{config.puzzles.name}:{row}",
            board=board,
            givens=grids[row],
            mode=folder.facts.mode,
            caps=caps,
        )
        for row in picked
    ]


def take_turn(engine: Engine, requests: Sequence[Request], device: torch.device) -> Turn:
    """Decode all requests once."""
    num_passes = engine.stats.num_forward_passes
    reset_peak(device)
    started_s = time.perf_counter()
    results = {result.key: result for result in engine.decode(requests)}
    return Turn(
        results=results,
        duration_s=time.perf_counter() - started_s,
        num_forward_passes=engine.stats.num_forward_passes - num_passes,
        peak_bytes=peak_memory(device),
    )


def table(best: dict[str, Turn]) -> list[dict[str, Any]]:
    """One row an engine."""
    first = next(iter(best.values()))
    return [
        {
            "engine": name,
            "tokens/s": turn.speed,
            "ratio": turn.speed / first.speed,
            "tokens": turn.num_tokens,
            "seconds": turn.duration_s,
            "passes": turn.num_forward_passes,
            "peak MB": turn.peak_bytes / 1e6,
            "solved": sum(r.ended_by == EndedBy.SOLVED for r in turn.results.values()),
            "same": sum(is_same(turn.results[key], r) for key, r in first.results.items()),
        }
        for name, turn in best.items()
    ]


def is_same(one: Result, other: Result) -> bool:
    """Whether two results have the same tokens."""
    return len(one.segments) == len(other.segments) and all(
        map(np.array_equal, one.segments, other.segments)
    )


def reset_peak(device: torch.device) -> None:
    """Begin to watch the peak anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, Linux only


def peak_memory(device: torch.device) -> int:
    """Most bytes in use since `reset_peak`."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")


def memory_in_use(device: torch.device) -> int:
    """Bytes in use now."""
    return torch.cuda.memory_allocated() if device.type == "cuda" else _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
