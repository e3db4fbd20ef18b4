"""Validation at the paper's scale: random machines, generated and compared token for token.

Each pair has random numbers of its own, from the seed and its number, so that results do not depend
on the number of workers. A pair is skipped only if the machine does not halt in time, or has no
output; anything else that goes wrong is a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from multiprocessing import get_context

import numpy as np

from compile_tm.constructions.compiled import compile_machine
from compile_tm.constructions.sequences import cot_ids, min_bits, scot_segments
from compile_tm.constructions.vocabulary import Mode
from compile_tm.machines.interpreter import Run, Status, run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.sparse import SparseError, SparseTransformer

MODES: tuple[Mode, ...] = ("cot", "scot")
_CHUNK = 16


class Outcome(Enum):
    """What became of a pair."""

    CORRECT = "correct"
    """CoT and SCoT generated exactly the tokens of the definitions."""
    NOT_HALTING = "skipped: not halted within the step limit"
    NO_OUTPUT = "skipped: halted without an output"
    WRONG = "wrong"
    """See `PairResult.detail`."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """One machine and input."""

    number: int
    outcome: Outcome
    detail: str = ""
    """What was wrong, and where."""
    num_tokens: int = 0
    """Tokens generated, prompts left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All pairs."""

    counts: dict[Outcome, int]
    num_tokens: int
    failures: tuple[PairResult, ...]

    @property
    def share_correct(self) -> float:
        """Correct pairs of all."""
        return self.counts[Outcome.CORRECT] / max(1, sum(self.counts.values()))


def check_pair(
    number: int, *, seed: int, machines: RandomMachineConfig, max_steps: int, max_extra_bits: int
) -> PairResult:
    """Draw a machine, an input and r, compile, generate and compare, with CoT and with SCoT."""
    rng = np.random.default_rng([seed, number])
    machine = random_machine(rng, machines)
    word = random_word(rng, machine, max_length=machines.max_word)
    run = run_machine(machine, word, max_steps=max_steps)
    if run.status is not Status.HALTED:
        return PairResult(number, Outcome.NOT_HALTING)
    if run.output is None:
        return PairResult(number, Outcome.NO_OUTPUT)
    num_tokens = 0
    for mode in MODES:
        bits = min_bits(run, mode=mode) + 2 * int(rng.integers(max_extra_bits // 2 + 1))
        try:
            num_tokens += _compare(run, mode, bits)
        except (AssertionError, SparseError) as error:
            detail = f"{mode}, r = {bits}, {run.num_steps} steps: {error}"
            return PairResult(number, Outcome.WRONG, detail)
    return PairResult(number, Outcome.CORRECT, num_tokens=num_tokens)


def validate(
    num_pairs: int,
    *,
    seed: int,
    machines: RandomMachineConfig,
    max_steps: int,
    max_extra_bits: int,
    num_workers: int,
) -> Iterator[PairResult]:
    """Results of pairs 0, 1, .. in order, by several processes."""
    check = partial(
        check_pair,
        seed=seed,
        machines=machines,
        max_steps=max_steps,
        max_extra_bits=max_extra_bits,
    )
    if num_workers == 1:
        yield from map(check, range(num_pairs))
        return
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check, range(num_pairs), chunksize=_CHUNK)


def summarise(results: list[PairResult]) -> Summary:
    """Count outcomes."""
    counted = Counter(result.outcome for result in results)
    return Summary(
        counts={outcome: counted[outcome] for outcome in Outcome},
        num_tokens=sum(result.num_tokens for result in results),
        failures=tuple(result for result in results if result.outcome is Outcome.WRONG),
    )


def _compare(run: Run, mode: Mode, bits: int) -> int:
    """Generate, and compare every token; returns how many were generated.

    Raises:
        AssertionError: a token, the output, or the gap between scores is not as it must be.
        SparseError: the transformer is not ternary, or ties have different values.
    """
    compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True)
    vocabulary = compiled.vocabulary
    model = SparseTransformer.from_program(compiled.program)
    generation = generate_words(model, compiled, [run.word])[0]
    expected = [(cot_ids(vocabulary, run, bits=bits), len(run.word) + 2)]
    if mode == "scot":
        expected = list(scot_segments(vocabulary, run, bits=bits))
    for number, (ids, _) in enumerate(expected):
        generated = generation.segments[number : number + 1]
        assert generated, f"segment {number + 1} is missing"
        same = min(len(ids), len(generated[0]))
        differing = np.flatnonzero(generated[0][:same] != ids[:same])
        assert not len(differing), (
            f"segment {number + 1}, position {differing[0]}: generated "
            f"{vocabulary.token(int(generated[0][differing[0]]))}, must be "
            f"{vocabulary.token(int(ids[differing[0]]))}"
        )
        assert len(generated[0]) == len(ids), f"segment {number + 1} has another length"
    assert len(generation.segments) == len(expected), "there are segments after the last"
    assert generation.output == run.output, f"output {generation.output}, must be {run.output}"
    gap = model.stats.least_gap
    assert gap is not None, "no token was generated"
    assert gap >= 1, f"the best score is only {gap} above the next"
    return sum(len(ids) - prompt_length for ids, prompt_length in expected)
