"""Compilation and sparse decoding on one core: `python -m scripts.bench.compile`.

Building: milliseconds for the program and the dense weights of binary addition, and the ratio to a
naive baseline that sets one weight at a time. Decoding: tokens per second at a short and a long
context; the output is compared with the machine outside the timed region. All times are CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from compile_tm.constructions.compiled import compile_machine
from compile_tm.constructions.turing import tm_program
from compile_tm.machines.examples import binary_addition, busy_beaver
from compile_tm.machines.folding import fold
from compile_tm.machines.interpreter import run_machine
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.dense import dense_weights
from compile_tm.program.program import Program
from compile_tm.runtime.sparse import SparseTransformer
from scripts.bench.harness import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Benchmark compilation and decoding."""

    build_bits: int = 12
    """Number of position bits r of the programs that are built."""
    short: int = 1_000
    """Short context, tokens."""
    long: int = 100_000
    """Long context, tokens."""
    repeats: int = 5
    """Number of runs; the fastest is reported."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark."""
    builds = [_build(binary_addition(), config)]
    Report(title="Building", rows=builds, facts={}).publish(None)
    digits = "".join(map(str, np.random.default_rng(0).integers(0, 2, 8000)))
    cases = (
        (binary_addition(), lambda n: f"1{digits[: n // 12]}+1{digits[: n // 12]}"),
        (fold(busy_beaver(5)), lambda _: ""),
    )
    rows = [_decode(machine, word, config) for machine, word in cases]
    facts = {"repeats": config.repeats, "builds": builds}
    Report(title="Sparse decoding, one core", rows=rows, facts=facts).publish(config.out)
    return 0


def _build(machine: TuringMachine, config: Config) -> dict[str, Any]:
    def build() -> Program:
        program = tm_program(machine, mode="cot", bits=config.build_bits)
        dense_weights(program)
        return program

    program = build()
    ours = _best_cpu_time(build, config.repeats)
    naive = _best_cpu_time(lambda: _one_at_a_time(program), 1)
    return {
        "machine": machine.name,
        "bits": config.build_bits,
        "neurons": sum(layer.num_neurons for layer in program.layers),
        "tokens": program.sizes.vocab_size,
        "ms": round(1000 * ours),
        "naive ms": round(1000 * naive),
        "ratio": round(naive / ours, 1),
    }


def _one_at_a_time(program: Program) -> None:
    """Set the nonzero weights one at a time."""
    sizes = program.sizes
    for layer in program.layers:
        W_1, W_2 = (torch.zeros(sizes.d_ff, sizes.d, dtype=torch.int8) for _ in range(2))
        for matrix, part in ((W_1, layer.up), (W_2, layer.down)):
            for neuron, coordinate, weight in zip(*(a.tolist() for a in part), strict=True):
                matrix[neuron, coordinate] = weight
        for head in layer.heads:
            for wires in (head.queries, head.keys, head.values, head.outputs):
                selector = torch.zeros(len(wires), sizes.d, dtype=torch.int8)
                for row, coordinate in enumerate(wires.coordinates):
                    selector[row, coordinate] = 1
    for values in (program.embedding, program.unembedding):
        table = torch.zeros(values.shape, dtype=torch.int8)
        for token, coordinate in np.argwhere(values).tolist():
            table[token, coordinate] = int(values[token, coordinate])


def _decode(machine: TuringMachine, word: Callable[[int], str], config: Config) -> dict[str, Any]:
    compiled = compile_machine(machine, mode="cot", bits=18, reachable_only=True)
    model = SparseTransformer.from_program(compiled.program)
    rates = {}
    for length in (config.short, config.long):
        prompt = compiled.vocabulary.input_ids(word(length))
        ids = np.empty(0, dtype=np.int32)

        def generate(prompt: np.ndarray = prompt, length: int = length) -> np.ndarray:
            return model.generate([prompt], stop=compiled.stop_ids, max_positions=length)[0]

        ids = generate()
        run = run_machine(machine, word(length), max_steps=length)
        steps = compiled.vocabulary.run_ids[run.recorded_rows]
        is_step = ids >= compiled.vocabulary.runs.start
        assert ids[is_step].tolist() == steps[: is_step.sum()].tolist()
        repeats = config.repeats if length == config.short else 1
        rates[length] = len(ids) / _best_cpu_time(generate, repeats)
    return {
        "machine": machine.name,
        "L": compiled.program.sizes.L,
        "d": compiled.program.sizes.d,
        **{f"tokens/s at {length:,}": round(rate) for length, rate in rates.items()},
        "slowdown": round(rates[config.short] / rates[config.long], 2),
    }


def _best_cpu_time(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
