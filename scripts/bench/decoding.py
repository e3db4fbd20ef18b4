"""Speed and memory of the engines: `python -m scripts.bench.decoding --models M --puzzles FILE`.

Every engine decodes the same puzzles with the same number of slots in one process; the fastest of
several turns is reported, without loading and compilation. Ratios are relative to the first engine.
`cpu s` is the CPU time of this process, which is less sensitive to other load; it is empty for
vLLM, which runs in other processes. `of roofline` is relative to the throughput of `segment` if it
only read weights and the KV cache, at the bandwidth of large copies. Peak memory is that of the
process during a turn, minus its memory before the engine was loaded. `same` counts the puzzles with
the same tokens as the first engine; see `scripts.bench.agreement`. Speeds go to standard error as
they are measured, and the JSON file is rewritten after each model.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from tyro.conf import OmitArgPrefixes

from data.model_format.facts import model_name
from data.model_format.precision import PrecisionName, get_precision
from data.runtime.cpus import available_cpus
from eval.engines.contract import Caps, Engine, FinishReason, Request, Result, paper_caps
from eval.engines.factory import LOCAL_ENGINES, make_engine
from eval.engines.puzzle_run import input_prompt
from eval.network.model_folder import ModelFolder
from scripts.bench.harness import Report, best_time, load_grids
from solver.vocabulary import SUMMARY, suffix_from_last

_WARM_UP = Caps(max_new_tokens=32, max_segment_tokens=32)


def installed_engines() -> tuple[str, ...]:
    """Return the available engines: all, or all but vLLM if it is not installed."""
    is_missing = importlib.util.find_spec("vllm") is None
    return tuple(name for name in LOCAL_ENGINES if name != "vllm" or not is_missing)


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseConfig:
    """Models, puzzles and engines."""

    models: tuple[Path, ...]
    """Model folders."""
    puzzles: tuple[Path, ...]
    """Puzzle files: one for all models, or one per model."""
    engines: tuple[str, ...] = field(default_factory=installed_engines)
    """Engines; the first is the baseline."""
    num_puzzles: int = 256
    """Size of a random sample of the file; all puzzles if it has fewer."""
    seed: int = 0
    """Seed of the sample."""
    num_slots: int = 32
    """Batch slots."""
    precision: PrecisionName = "fp32"
    """Precision policy."""
    max_new_tokens: int | None = None
    """Maximum number of tokens of a puzzle (default: the paper's)."""
    max_segment_tokens: int | None = None
    """Maximum number of tokens of an SCoT segment (default: the paper's)."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        unknown = set(self.engines) - set(LOCAL_ENGINES)
        if unknown or not self.engines:
            raise ValueError(f"engines: got {self.engines}, allowed are {', '.join(LOCAL_ENGINES)}")
        if len(self.puzzles) not in (1, len(self.models)):
            raise ValueError(
                f"puzzles: got {len(self.puzzles)} files, allowed are 1 or {len(self.models)}"
            )
        for name in ("num_puzzles", "num_slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is at least 1")

    def cases(self) -> list[tuple[ModelFolder, list[Request]]]:
        """Open each model and create requests for its puzzles."""
        files = self.puzzles * (len(self.models) if len(self.puzzles) == 1 else 1)
        folders = [ModelFolder.open(path) for path in self.models]
        return [
            (folder, load_requests(folder, file, self))
            for folder, file in zip(folders, files, strict=True)
        ]

    def engine(self, name: str, folder: ModelFolder) -> Engine:
        """Load a model into an engine."""
        return make_engine(
            name,
            folder,
            precision=get_precision(self.precision),
            device=_device(),
            num_slots=self.num_slots,
        )

    def facts(self) -> dict[str, Any]:
        """Return device, versions and settings for the report."""
        return {
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "precision": self.precision,
            "num_slots": self.num_slots,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare the speed of engines on models."""

    case: OmitArgPrefixes[CaseConfig]
    """Models, puzzles and engines."""
    num_turns: int = 2
    """Turns of each engine; the fastest is reported."""

    def __post_init__(self) -> None:
        if self.num_turns < 1:
            raise ValueError(f"num_turns: got {self.num_turns}, allowed is at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One pass of an engine over all puzzles."""

    results: dict[str, Result]
    """Results by key."""
    duration_s: float
    """Wall time."""
    cpu_s: float
    """CPU time of this process, all threads."""
    num_forward_passes: int
    """Forward passes."""
    peak_bytes: int
    """Peak memory of the process, or of the GPU, during the turn."""

    @property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return sum(result.num_new_tokens for result in self.results.values())

    @property
    def speed(self) -> float:
        """Generated tokens per second."""
        return self.num_tokens / self.duration_s


def main(config: Config) -> int:
    """Run the benchmark."""
    case = config.case
    use_all_cpus()
    bandwidth = memory_bandwidth(_device())
    title = f"decoding, {case.num_slots} slots, {case.precision}, {torch.get_num_threads()} threads"
    rows: list[dict[str, Any]] = []
    report = Report(title=title, rows=rows, facts=case.facts())
    for folder, requests in case.cases():
        best = {}
        for name in case.engines:
            best[name] = measure(name, folder, requests, config)
            line = f"{describe(folder)}, {name}: {best[name].speed:,.0f} tokens/s"
            print(line, file=sys.stderr, flush=True)
        rows += [{"model": describe(folder)} | row for row in table(best)]
        if "segment" in best:
            bound = roofline(
                best["segment"],
                requests,
                folder,
                item_size=2 if case.precision == "bf16" else 4,
                bandwidth=bandwidth,
            )
            for row in rows[-len(best) :]:
                row["of roofline"] = row["tokens/s"] / bound
        report.write(case.out)
    report.publish(case.out)
    return 0


def use_all_cpus() -> None:
    """Set torch's threads to the available CPUs, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(available_cpus()[0])


def describe(folder: ModelFolder) -> str:
    """Return a name for a model: run, board, mode and a prefix of its digest."""
    facts = folder.facts
    return f"{model_name(folder.path)} ({facts.board} {facts.mode}, {folder.weights_digest[:8]})"


def load_requests(folder: ModelFolder, puzzles: Path, config: CaseConfig) -> list[Request]:
    """Return requests for a random sample of the puzzles of a file.

    Raises:
        ValueError: the boards of puzzles and model differ.
    """
    board, grids = load_grids(puzzles)
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
            key=f"{puzzles.name}:{row}",
            board=board,
            givens=grids[row],
            mode=folder.facts.mode,
            caps=caps,
        )
        for row in picked
    ]


def measure(name: str, folder: ModelFolder, requests: Sequence[Request], config: Config) -> Turn:
    """Load an engine, return its fastest turn, and close it."""
    device = _device()
    before = memory_in_use(device)
    engine = config.case.engine(name, folder)
    try:
        first = requests[: config.case.num_slots]
        list(engine.decode([replace(request, caps=_WARM_UP) for request in first]))
        turns = [take_turn(engine, requests, device) for _ in range(config.num_turns)]
    finally:
        engine.close()
    fastest = max(turns, key=lambda turn: turn.speed)
    return replace(fastest, peak_bytes=fastest.peak_bytes - before)


def memory_bandwidth(device: torch.device) -> float:
    """Measure the memory bandwidth of a device in B/s by copies of a large tensor."""
    source = torch.empty(1 << (28 if device.type == "cuda" else 24), device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize()

    copy()
    return 2 * source.nbytes / best_time(copy, repeats=5)


def roofline(
    turn: Turn,
    requests: Sequence[Request],
    folder: ModelFolder,
    *,
    item_size: int,
    bandwidth: float,
) -> float:
    """Return the tokens per second of a decoder that only reads weights and the KV cache.

    Args:
        turn: Results and number of forward passes.
        requests: Requests of the turn.
        folder: Model, of a family with a native network.
        item_size: Bytes per element.
        bandwidth: Memory bandwidth in B/s.
    """
    network = folder.network
    entry = 2 * network.num_layers * network.num_kv_heads * network.head_size * item_size
    num_entries = 0
    for request in requests:
        prompt = len(input_prompt(request))
        for segment in turn.results[request.key].segments:
            num_entries += len(segment) * prompt + len(segment) * (len(segment) + 1) // 2
            summary = suffix_from_last(segment, SUMMARY)
            prompt = 0 if summary is None else len(summary)
    num_bytes = num_entries * entry + turn.num_forward_passes * folder.num_parameters * item_size
    return turn.num_tokens * bandwidth / num_bytes


def take_turn(engine: Engine, requests: Sequence[Request], device: torch.device) -> Turn:
    """Decode all requests once."""
    num_passes = engine.stats.num_forward_passes
    reset_peak(device)
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    results = {result.key: result for result in engine.decode(requests)}
    return Turn(
        results=results,
        duration_s=time.perf_counter() - started_s,
        cpu_s=time.process_time() - cpu_started_s,
        num_forward_passes=engine.stats.num_forward_passes - num_passes,
        peak_bytes=peak_memory(device),
    )


def table(best: dict[str, Turn]) -> list[dict[str, Any]]:
    """Return one row per engine."""
    first = next(iter(best.values()))
    return [
        {
            "engine": name,
            "tokens/s": turn.speed,
            "ratio": turn.speed / first.speed,
            "tokens": turn.num_tokens,
            "seconds": turn.duration_s,
            "cpu s": None if name == "vllm" else turn.cpu_s,
            "passes": turn.num_forward_passes,
            "peak MB": None if name == "vllm" else turn.peak_bytes / 1e6,
            "solved": sum(r.finish_reason == FinishReason.SOLVED for r in turn.results.values()),
            "same": sum(is_same(turn.results[key], r) for key, r in first.results.items()),
        }
        for name, turn in best.items()
    ]


def is_same(one: Result, other: Result) -> bool:
    """Return whether two results have the same tokens."""
    return len(one.segments) == len(other.segments) and all(
        map(np.array_equal, one.segments, other.segments)
    )


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def reset_peak(device: torch.device) -> None:
    """Reset the peak memory statistics."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, Linux only


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes since `reset_peak`."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")


def memory_in_use(device: torch.device) -> int:
    """Return the memory in use, bytes."""
    return torch.cuda.memory_allocated() if device.type == "cuda" else _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
