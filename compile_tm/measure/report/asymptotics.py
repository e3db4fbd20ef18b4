"""The paper's table of asymptotics, and the convergence of its own rows.

Rows on other works are quoted. `growth` evaluates the formulas of the paper's rows: the ratio of
each quantity to its O-term converges to a constant for increasing bounds, which `limits` returns in
closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from compile_tm.constructions.sequences import checked_run, cot_length, min_bits, scot_segments
from compile_tm.constructions.sizes import MachineNumbers, tm_dimensions
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.machines.examples import example
from compile_tm.machines.turing import TuringMachine
from compile_tm.measure.report.theorems import (
    activation_exponent_bits,
    attention_exponent_bits,
    context_bound,
    cot_tokens_bound,
    denoised_sizes,
    limit_for,
    scot_tokens_bound,
)


class Work(NamedTuple):
    """Row of the paper's table "related_work_scaling".

    t and s are the steps and cells of a run, T and S bounds that are known in advance.
    """

    name: str
    depth: str
    width: str
    precision: str
    steps: str
    context: str
    parameters: str
    architecture: str


TABLE = (
    Work("Perez et al.", "1", "1", "log T", "t", "t", "1", "ED-CoT-H"),
    Work("Bhattamishra et al.", "1", "1", "S", "t", "t", "1", "ED-Con-H"),
    Work("Merrill & Sabharwal", "1", "1", "log T", "t", "t", "1", "D-CoT-H"),
    Work("Yang et al. (PENCIL)", "1", "1", "log S", "t", "s", "1", "D-SCoT-H"),
    Work("Wei et al.", "log T", "log T", "log log T", "T", "T", "(log T)^3", "ED-Con-H"),
    Work("Li et al. 2024", "1", "log T", "1", "t log t", "t log t", "T (log T)^2", "D-CoT-Sfp"),
    Work("Li et al. 2025", "1", "1", "1", "t S^eps", "S", "1", "D-CoT-H"),
    Work("Jiang et al.", "1", "1", "T", "exp(t)", "exp(t)", "1", "D-CoT-S"),
    Work("the paper, CoT", "log T", "log T", "log log T", "t", "t", "(log T)^3", "D-CoT-S"),
    Work("the paper, SCoT", "log S", "log S", "log log S", "t", "s", "(log S)^3", "D-SCoT-S"),
)
TERMS = {
    "depth, denoised": "log l",
    "width d": "log l",
    "parameters": "(log l)^3",
    "c, exact attention": "(log l)^(3/4) (log log l)^(1/2)",
    "c, denoised": "(log l)^(3/4)",
    "exponent bits, attention": "log log l",
    "exponent bits, activations": "log log log l",
    "context": "l",
}
"""The paper's O-term of each quantity, for l = T or S, with logarithms to base 2."""


class TokenCount(NamedTuple):
    """Number of tokens of an example's run, and the bounds of the lemmas."""

    machine: str
    word: str
    num_steps: int
    space: int
    cot: int
    cot_bound: int
    scot: int
    scot_bound: int
    longest_segment: int
    segment_bound: int


def growth(numbers: MachineNumbers, *, mode: Mode, bits: int) -> dict[str, float]:
    """Return the ratio of each quantity of `TERMS` to its term, at the largest l for 2^r tokens."""
    sizes = tm_dimensions(numbers, mode=mode, bits=bits)
    soft = denoised_sizes(sizes)
    exact = exact_bound(sizes, length=1 << bits)
    denoised = denoise_bound(sizes, length=1 << bits)
    limit = limit_for(mode, bits)
    log = math.log2(limit)
    loglog = math.log2(log)
    return {
        "depth, denoised": soft.L / log,
        "width d": soft.d / log,
        "parameters": soft.num_parameters / log**3,
        "c, exact attention": exact / (log**0.75 * loglog**0.5),
        "c, denoised": denoised / log**0.75,
        "exponent bits, attention": attention_exponent_bits(bits) / loglog,
        "exponent bits, activations": activation_exponent_bits(denoised) / math.log2(loglog),
        "context": context_bound(mode, limit) / limit,
    }


def limits(numbers: MachineNumbers, *, mode: Mode) -> dict[str, float]:
    """Return the limits of `growth`, except exponent bits, whose ratios vary between 1 and 2.

    L = 5r/2 (twice that with denoising), d_k = 4r, d_v = r, and the coefficients of r in d and d_ff
    are those of the theorems, where d_ff = 6d with denoising unless a coefficient is larger. Hence
    c^2 is sqrt(4r) r log(2) with denoising, and 2 sqrt(4r) (5r/2) (2 log r) without.
    """
    K = numbers.num_tapes
    heads = 3 * K if mode == "cot" else 3 * K + 2
    d = 6 * K + 6 if mode == "cot" else 7 * K + 9
    d_ff = max(18, 14 * K + 2, 6 * d) if mode == "cot" else max(22, 18 * K + 2, 6 * d)
    # Embeddings are of order r and vanish in the limit.
    return {
        "depth, denoised": 5.0,
        "width d": float(d),
        "parameters": 5.0 * (heads * 2 * (4 + 1) * d + 2 * d_ff * d),
        "c, exact attention": math.sqrt(20 * math.log(2)),
        "c, denoised": math.sqrt(2 * math.log(2)),
        "context": 6.0 if mode == "cot" else 8.0,
    }


def token_counts(examples: Sequence[tuple[str, str]]) -> list[TokenCount]:
    """Return the sequence lengths of example runs, with the smallest r of each run."""
    counts = []
    for name, word in examples:
        machine = example(name)
        assert isinstance(machine, TuringMachine)
        run = checked_run(machine, word)
        vocabulary = TmVocabulary(machine=machine, mode="scot", reachable_only=True)
        bits = min_bits(run, mode="scot")
        segments = [len(ids) for ids, _ in scot_segments(vocabulary, run, bits=bits)]
        counts.append(
            TokenCount(
                machine=name,
                word=word if len(word) <= 20 else f"{word[:8]}.. ({len(word)})",
                num_steps=run.num_steps,
                space=run.space,
                cot=cot_length(run, bits=min_bits(run, mode="cot")),
                cot_bound=cot_tokens_bound(num_steps=run.num_steps, word_length=len(run.word)),
                scot=sum(segments),
                scot_bound=scot_tokens_bound(num_steps=run.num_steps, word_length=len(run.word)),
                longest_segment=max(segments),
                segment_bound=context_bound("scot", run.space),
            )
        )
    return counts
