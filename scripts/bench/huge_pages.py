"""CPU training with and without huge pages: `python -m scripts.bench.huge_pages --data DIR`.

glibc reads its tunables at process start, so each turn is a separate process of `sudocot train run`
with preset `small`. Turns alternate, the median is reported, and the first half of each turn is
warm-up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from scripts.bench.harness import Report
from training.reporting.metrics import read_metrics
from training.run_checks import HUGE_PAGES
from training.run_folder import RunFolder

TUNABLES = {"plain": "", "huge pages": f"{HUGE_PAGES}=1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare training throughput with and without huge pages."""

    data: Path
    """Training data set."""
    model: str = "small-4x4"
    """Model preset."""
    precisions: tuple[str, ...] = ("fp32", "bf16")
    """Precision policies."""
    num_tokens: int = 120_000
    """Tokens of a turn."""
    num_turns: int = 3
    """Turns of each setting."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    rows = []
    for precision in config.precisions:
        rates: dict[str, list[float]] = {name: [] for name in TUNABLES}
        for _ in range(config.num_turns):
            for name, tunables in TUNABLES.items():
                rates[name].append(tokens_per_second(config, precision, tunables=tunables))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        rows += [
            {
                "precision": precision,
                "malloc": name,
                "tokens/s": medians[name],
                "least": min(values),
                "most": max(values),
                "ratio": medians[name] / medians["plain"],
            }
            for name, values in rates.items()
        ]
    facts: dict[str, Any] = {"tokens": config.num_tokens, "turns": config.num_turns}
    Report(title=f"training {config.model} on a CPU", rows=rows, facts=facts).publish(config.out)
    return 0


def tokens_per_second(config: Config, precision: str, *, tunables: str) -> float:
    """Return the tokens per second of the second half of a run.

    Raises:
        ValueError: the training failed, with its error output, or had fewer than two updates.
    """
    with tempfile.TemporaryDirectory() as work:
        folder = RunFolder(Path(work, "run"))
        options = {
            "data": config.data,
            "out": folder.path,
            "preset": "small",
            "model": config.model,
            "precision": precision,
            "budget": config.num_tokens,
            "log-every": 1,
        }
        command = [sys.executable, "-m", "sudocot_cli", "train", "run"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        environment = {**os.environ, "GLIBC_TUNABLES": tunables, "ACCELERATE_USE_CPU": "true"}
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode != 0:
            raise ValueError(f"train run: {process.stderr.strip()}")
        rows: Any = read_metrics(folder.metrics)
    updates = [row for row in rows if row["kind"] == "train"]
    if len(updates) < 2:
        raise ValueError(f"num_tokens: got {config.num_tokens}, allowed are two updates or more")
    middle, last = updates[len(updates) // 2 - 1], updates[-1]
    tokens: int = last["num_tokens"] - middle["num_tokens"]
    seconds: float = last["session_s"] - middle["session_s"]
    return tokens / seconds


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
