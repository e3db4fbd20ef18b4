"""CPU training with several memory allocators: `python -m scripts.bench.allocators --data DIR`.

An allocator is selected at process start, so each turn is a separate process of `sudocot train run`
with preset `small`. Turns alternate, the median is reported, and the first half of each turn is
warm-up. jemalloc is included if it is installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from scripts.bench.harness import Report
from training.reporting.metrics import read_metrics
from training.run_checks import HUGE_PAGES, MALLOC_TUNABLES
from training.run_folder import RunFolder

JEMALLOC_CONF = "thp:always,oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1"
"""jemalloc options: huge pages, and freed memory is kept, also that of large allocations."""
_ALLOCATOR_VARIABLES = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_CONF")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare training throughput and memory with several allocators."""

    data: Path
    """Training data set."""
    model: str = "small-4x4"
    """Model preset."""
    precisions: tuple[str, ...] = ("fp32", "bf16")
    """Precision policies."""
    compile: bool = False
    """Compile the model with torch.compile."""
    num_tokens: int = 120_000
    """Tokens of a turn."""
    num_turns: int = 3
    """Turns of each setting."""
    out: Path | None = None
    """JSON file to write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Measurements of one training."""

    tokens_per_second: float
    """Throughput of the second half."""
    peak_bytes: int
    """Maximum resident memory."""


def main(config: Config) -> int:
    """Run the benchmark."""
    settings = allocator_variables()
    rows = []
    for precision in config.precisions:
        turns: dict[str, list[Turn]] = {name: [] for name in settings}
        for _ in range(config.num_turns):
            for name, variables in settings.items():
                turns[name].append(train(config, precision, variables))
        rates = {name: [turn.tokens_per_second for turn in turns[name]] for name in settings}
        medians = {name: statistics.median(values) for name, values in rates.items()}
        rows += [
            {
                "precision": precision,
                "allocator": name,
                "tokens/s": medians[name],
                "least": min(values),
                "most": max(values),
                "ratio": medians[name] / medians["glibc"],
                "peak GB": max(turn.peak_bytes for turn in turns[name]) / 1e9,
            }
            for name, values in rates.items()
        ]
    facts: dict[str, Any] = {"tokens": config.num_tokens, "turns": config.num_turns}
    Report(title=f"training {config.model} on a CPU", rows=rows, facts=facts).publish(config.out)
    return 0


def allocator_variables() -> dict[str, dict[str, str]]:
    """Return the environment variables that select and configure each allocator."""
    settings = {
        "glibc": {},
        "glibc, huge pages": {"GLIBC_TUNABLES": f"{HUGE_PAGES}=1"},
        "glibc, huge pages, memory kept": {"GLIBC_TUNABLES": MALLOC_TUNABLES},
    }
    jemalloc = find_library("jemalloc")
    if jemalloc is not None:
        settings["jemalloc"] = {"LD_PRELOAD": jemalloc, "MALLOC_CONF": JEMALLOC_CONF}
    return settings


def train(config: Config, precision: str, variables: dict[str, str]) -> Turn:
    """Run a training with environment variables, and measure it.

    Raises:
        ValueError: The training failed, with its error output, or had fewer than two updates.
    """
    with tempfile.TemporaryDirectory() as work:
        folder = RunFolder(Path(work, "run"))
        options = {
            "data": config.data,
            "out": folder.path,
            "preset": "small",
            "model": config.model,
            "precision": precision,
            "compile": config.compile,
            "budget": config.num_tokens,
            "log-every": 1,
        }
        command = [sys.executable, "-m", "sudocot_cli", "train", "run"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        inherited = {
            name: value for name, value in os.environ.items() if name not in _ALLOCATOR_VARIABLES
        }
        environment = inherited | variables | {"ACCELERATE_USE_CPU": "true"}
        errors = Path(work, "errors.txt")
        with errors.open("w") as file:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=file
            )
            _, status, usage = os.wait4(process.pid, 0)  # Popen.wait does not return the memory
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise ValueError(f"train run: {errors.read_text().strip()}")
        rows: Any = read_metrics(folder.metrics)
    rate = second_half_rate([row for row in rows if row["kind"] == "train"])
    unit = 1 if sys.platform == "darwin" else 1024
    return Turn(tokens_per_second=rate, peak_bytes=usage.ru_maxrss * unit)


def second_half_rate(updates: list[dict[str, Any]]) -> float:
    """Return the tokens per second of the second half of a run.

    Raises:
        ValueError: There are fewer than two updates.
    """
    if len(updates) < 2:
        raise ValueError(f"num_tokens: got {len(updates)} updates, allowed are two or more")
    middle, last = updates[len(updates) // 2 - 1], updates[-1]
    tokens: int = last["num_tokens"] - middle["num_tokens"]
    seconds: float = last["session_s"] - middle["session_s"]
    return tokens / seconds


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
