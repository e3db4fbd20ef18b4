"""Throughput of the engine `api` on a vLLM server, relative to vLLM's own benchmark client.

    python -m scripts.bench.api_client --model MODEL --base-url URL --puzzles FILE

MODEL is the CoT model folder that the server serves. Both clients send the same prompts, with the
same number of requests in flight, in alternating turns; the fastest turn of each is reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import tyro

from data.model_format.precision import UNKNOWN_PRECISION
from data.text import tokens_to_text
from eval.engines.api import ApiEngine
from eval.engines.contract import Request
from eval.engines.options import EngineOptions, ServerOptions
from eval.engines.puzzle_run import input_prompt
from scripts.bench.decoding import CaseConfig
from scripts.bench.harness import Report

# The command `vllm bench serve` needs metadata that the distribution for CPUs does not have.
_VLLM_CLIENT = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare two clients of a server."""

    model: Path
    """CoT model folder, by the path that the server was started with."""
    base_url: str
    """URL of the server up to and including /v1."""
    puzzles: Path
    """Puzzle file."""
    num_puzzles: int = 256
    """Size of a random sample of the file; all puzzles if it has fewer."""
    seed: int = 0
    """Seed of the sample."""
    num_in_flight: int = 64
    """Concurrent requests."""
    max_new_tokens: int = 1024
    """Maximum number of tokens of a puzzle."""
    num_turns: int = 3
    """Turns of each client."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        for name in ("num_puzzles", "num_in_flight", "max_new_tokens", "num_turns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is at least 1")


class Turn(NamedTuple):
    """One pass of a client over all prompts."""

    num_tokens: int
    """Generated tokens."""
    duration_s: float
    """Wall time."""

    @property
    def speed(self) -> float:
        """Generated tokens per second."""
        return self.num_tokens / self.duration_s


def main(config: Config) -> int:
    """Run the benchmark."""
    [(folder, requests)] = CaseConfig(
        models=(config.model,),
        puzzles=(config.puzzles,),
        num_puzzles=config.num_puzzles,
        seed=config.seed,
        max_new_tokens=config.max_new_tokens,
        max_segment_tokens=config.max_new_tokens,
    ).cases()
    if folder.facts.mode != "cot":
        raise ValueError(f"model: got mode {folder.facts.mode}, allowed is cot")
    server = ServerOptions(base_url=config.base_url)
    engine = ApiEngine(
        folder,
        EngineOptions(
            precision=UNKNOWN_PRECISION,
            device=None,
            num_slots=config.num_in_flight,
            server=server,
        ),
    )
    turns: dict[str, list[Turn]] = {"vLLM's client": [], "engine api": []}
    try:
        _decode(engine, requests[: config.num_in_flight])
        with TemporaryDirectory() as work:
            for _ in range(config.num_turns):
                turns["vLLM's client"].append(_run_vllm_client(requests, config, Path(work)))
                turns["engine api"].append(_decode(engine, requests))
    finally:
        engine.close()
    best = {name: max(own, key=lambda turn: turn.speed) for name, own in turns.items()}
    baseline = best["vLLM's client"]
    rows: list[dict[str, Any]] = [
        {
            "client": name,
            "tokens": turn.num_tokens,
            "s": turn.duration_s,
            "tokens/s": turn.speed,
            "ratio": turn.speed / baseline.speed,
        }
        for name, turn in best.items()
    ]
    title = f"{len(requests)} puzzles, {config.num_in_flight} requests in flight"
    Report(title=title, rows=rows, facts={"model": config.model.name}).publish(config.out)
    return 0


def _decode(engine: ApiEngine, requests: list[Request]) -> Turn:
    start = time.perf_counter()
    num_tokens = sum(result.num_new_tokens for result in engine.decode(requests))
    return Turn(num_tokens, time.perf_counter() - start)


def _run_vllm_client(requests: list[Request], config: Config, work: Path) -> Turn:
    """Run vLLM's client in another process; its duration excludes startup."""
    prompts = work / "prompts.jsonl"
    lines = (
        json.dumps({"prompt": tokens_to_text(request.board, input_prompt(request))})
        for request in requests
    )
    prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options: dict[str, object] = {
        "base-url": config.base_url.removesuffix("/v1"),
        "endpoint": "/v1/completions",
        "model": config.model,
        "dataset-name": "custom",
        "dataset-path": prompts,
        "custom-output-len": config.max_new_tokens,
        "num-prompts": len(requests),
        "max-concurrency": config.num_in_flight,
        "temperature": 0,
        "result-dir": work,
        "result-filename": "result.json",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    flags = ["--skip-chat-template", "--disable-shuffle", "--disable-tqdm", "--save-result"]
    subprocess.run(
        [sys.executable, "-c", _VLLM_CLIENT, *words, *flags],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    result = json.loads((work / "result.json").read_text(encoding="utf-8"))
    return Turn(result["total_output_tokens"], result["duration"])


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
