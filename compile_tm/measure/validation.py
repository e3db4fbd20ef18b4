"""Validation on random machines at the paper's scale: token-by-token comparison.

Hardmax programs are decoded with the sparse runtime. Converted programs, and those with rotary
encodings, are checked by teacher forcing, all segments of a run in one forward pass: by induction
over tokens, greedy decoding generates a sequence if and only if the top token after each prefix is
the next one.

The random numbers of a pair depend only on the seed and its number, not on the forms or the number
of workers. A pair is skipped only if the machine does not halt in time, has no output, or makes too
few steps; any other error is a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.sequences import min_bits
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.convert import Kind, convert
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.settings import (
    Conversion,
    Denoising,
    RoundingPoints,
    layers_with_ties,
)
from compile_tm.machines.interpreter import Run, Status
from compile_tm.machines.random_machines import RandomMachineConfig
from compile_tm.machines.random_runs import random_long_run, random_run
from compile_tm.measure.checks import (
    HeadMargin,
    Problem,
    check_trace,
    margin_problems,
    trace_margins,
)
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.sparse import SparseError, SparseTransformer
from compile_tm.runtime.trace import trace_program
from data.runtime.parallel import map_in_order

MODES: tuple[Mode, ...] = ("cot", "scot")
_CHUNK = 16
Segments = list[tuple[npt.NDArray[np.int32], int]]
"""Expected sequences with their prompt lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxOptions:
    """Conversion to softmax transformers with rounding."""

    conversion: Kind
    """Conversion, with the theorem's c for N = 2^r."""
    points: RoundingPoints
    """Formats of activations and attention weights."""
    where: Denoising = Denoising.EVERY
    """Denoised layers; layers with ties are determined from the sequences of each pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of the transformer of a machine."""

    positions: Positions = "embedding"
    """Position encoding."""
    softmax: SoftmaxOptions | None = None
    """Conversion to softmax; None: hardmax."""

    def __str__(self) -> str:
        name = "hardmax" if self.softmax is None else self.softmax.conversion
        return name if self.positions == "embedding" else f"{name} ({self.positions})"


class Outcome(Enum):
    """Outcome of a pair."""

    CORRECT = "correct"
    """All tokens of CoT and SCoT are equal to the definitions, in all forms."""
    NOT_HALTING = "skipped: not halted within the step limit"
    NO_OUTPUT = "skipped: halted without an output"
    TOO_SHORT = "skipped: no machine with enough steps was found"
    WRONG = "wrong"
    """See `PairResult.detail`."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """Result of one machine and input."""

    number: int
    """Number of the pair."""
    outcome: Outcome
    """Outcome."""
    detail: str = ""
    """Description of the error."""
    num_tokens: int = 0
    """Compared tokens of all forms, without prompts."""
    margin: HeadMargin | None = None
    """Minimum margin over heads; None if not measured."""
    num_steps: int | None = None
    """Number of steps of the machine; None if the pair was skipped or failed."""
    num_blocks: int = 0
    """Number of position blocks of the CoT."""
    num_segments: int = 0
    """Number of segments of the SCoT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of all pairs."""

    counts: dict[Outcome, int]
    """Number of pairs by outcome."""
    num_tokens: int
    """Compared tokens of all forms."""
    failures: tuple[PairResult, ...]
    """Failed pairs."""
    least_margin: PairResult | None
    """Pair with the smallest margin."""
    steps: tuple[int, ...]
    """Numbers of steps of the correct pairs, in ascending order."""
    num_with_blocks: int
    """Number of correct pairs whose CoT has a position block."""
    num_with_summaries: int
    """Number of correct pairs whose SCoT has a summary."""

    @property
    def share_correct(self) -> float:
        """Fraction of correct pairs."""
        return self.counts[Outcome.CORRECT] / max(1, sum(self.counts.values()))


def check_pair(
    number: int,
    *,
    seed: int,
    machines: RandomMachineConfig,
    max_steps: int,
    max_extra_bits: int,
    min_steps: int = 0,
    forms: Sequence[Form] = (Form(),),
) -> PairResult:
    """Check all forms of a random machine, on a random input, with a random r, for CoT and SCoT."""
    rng = np.random.default_rng([seed, number])
    run: Run | None
    if min_steps:
        run = random_long_run(rng, machines, min_steps=min_steps, max_steps=max_steps)
    else:
        run = random_run(rng, machines, max_steps=max_steps)
    if run is None:
        return PairResult(number, Outcome.TOO_SHORT)
    if run.status is not Status.HALTED:
        return PairResult(number, Outcome.NOT_HALTING)
    if run.output is None:
        return PairResult(number, Outcome.NO_OUTPUT)
    num_tokens, num_blocks, num_segments, margins = 0, 0, 0, []
    for mode in MODES:
        bits = min_bits(run, mode=mode) + 2 * int(rng.integers(max_extra_bits // 2 + 1))
        compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True)
        expected = compiled.segments_of(run)
        for form in forms:
            try:
                margin = _compare(compiled, run, expected, form)
            except (AssertionError, SparseError) as error:
                detail = f"{form}, {mode}, r = {bits}, {run.num_steps} steps: {error}"
                return PairResult(number, Outcome.WRONG, detail)
            num_tokens += sum(len(ids) - prompt_length for ids, prompt_length in expected)
            margins += [margin] if margin else []
        if mode == "cot":
            # A block follows every r steps, unless the run ends there.
            num_blocks = (run.num_steps - 1) // bits
        else:
            num_segments = len(expected)
    return PairResult(
        number,
        Outcome.CORRECT,
        num_tokens=num_tokens,
        margin=min(margins, key=lambda item: item.margin, default=None),
        num_steps=run.num_steps,
        num_blocks=num_blocks,
        num_segments=num_segments,
    )


def validate(
    num_pairs: int,
    *,
    seed: int,
    machines: RandomMachineConfig,
    max_steps: int,
    max_extra_bits: int,
    num_workers: int,
    min_steps: int = 0,
    forms: Sequence[Form] = (Form(),),
) -> Iterator[PairResult]:
    """Yield the results of pairs 0, 1, ... in order, computed by several processes.

    Args:
        num_pairs: Number of machines and inputs.
        seed: Random seed.
        machines: Sizes of the machines.
        max_steps: Maximum number of steps of a machine.
        max_extra_bits: Maximum difference between r and the smallest sufficient r.
        num_workers: Number of processes.
        min_steps: Minimum number of steps (see `random_long_run`). 0: unmodified random machines.
        forms: Transformers that are made from each machine.
    """
    check = partial(
        check_pair,
        seed=seed,
        machines=machines,
        max_steps=max_steps,
        max_extra_bits=max_extra_bits,
        min_steps=min_steps,
        forms=forms,
    )
    if num_workers == 1:
        yield from map(check, range(num_pairs))
        return
    start = _use_one_thread if set(forms) != {Form()} else None
    context = get_context("spawn")
    pool = ProcessPoolExecutor(num_workers, mp_context=context, initializer=start)
    chunks = (range(first, min(first + _CHUNK, num_pairs)) for first in range(0, num_pairs, _CHUNK))
    for results in map_in_order(
        partial(_check_chunk, check), chunks, workers=num_workers, pool=pool
    ):
        yield from results


def _check_chunk(check: Callable[[int], PairResult], numbers: range) -> list[PairResult]:
    """Check pairs in one process; chunks reduce the communication between processes."""
    return list(map(check, numbers))


def summarize(results: list[PairResult]) -> Summary:
    """Return the summary of results."""
    counted = Counter(result.outcome for result in results)
    with_margin = [(result.margin.margin, result) for result in results if result.margin]
    least = min(with_margin, key=lambda pair: pair[0], default=None)
    return Summary(
        counts={outcome: counted[outcome] for outcome in Outcome},
        num_tokens=sum(result.num_tokens for result in results),
        failures=tuple(result for result in results if result.outcome is Outcome.WRONG),
        least_margin=least and least[1],
        steps=tuple(sorted(r.num_steps for r in results if r.num_steps is not None)),
        num_with_blocks=sum(result.num_blocks > 0 for result in results),
        num_with_summaries=sum(result.num_segments > 1 for result in results),
    )


def _compare(
    compiled: CompiledMachine, run: Run, expected: Segments, form: Form
) -> HeadMargin | None:
    """Run a form of a machine and compare every token.

    Returns:
        For hardmax programs, the minimum margin over heads.

    Raises:
        AssertionError: a token, the output, or a score gap is wrong.
        SparseError: the transformer is not ternary, or ties have different values.
    """
    if form != Form():
        _compare_predicted(compiled, expected, form)
        return None
    _compare_generated(compiled, run, expected)
    margins = [_check_registers(compiled, ids, length) for ids, length in expected]
    return min((m for m in margins if m), key=lambda item: item.margin, default=None)


def _check_registers(
    compiled: CompiledMachine, ids: npt.NDArray[np.int32], prompt_length: int
) -> HeadMargin | None:
    """Check registers and scores at all positions; return the minimum margin over heads."""
    trace = trace_program(compiled.program, ids[:-1])
    margins = trace_margins(trace)
    problems: list[Problem] = margin_problems(margins)
    if prompt_length < len(trace.ids):
        problems = [*check_trace(trace, prompt_length=prompt_length), *problems]
    if problems:
        raise AssertionError(str(problems[0]))
    return min(margins, key=lambda item: item.margin, default=None)


def _compare_generated(compiled: CompiledMachine, run: Run, expected: Segments) -> None:
    model = SparseTransformer.from_program(compiled.program)
    generation = generate_words(model, compiled, [run.word])[0]
    for number, (ids, _) in enumerate(expected):
        generated = generation.segments[number : number + 1]
        _check(generated, f"segment {number + 1} is missing")
        same = min(len(ids), len(generated[0]))
        _compare_tokens(compiled, number, 0, generated[0][:same], ids[:same])
        _check(len(generated[0]) == len(ids), f"segment {number + 1} has another length")
    _check(len(generation.segments) == len(expected), "there are additional segments")
    _check(generation.output == run.output, f"output {generation.output}, must be {run.output}")
    gap = model.stats.least_gap
    if gap is None:
        raise AssertionError("no token was generated")
    _check(gap >= 1, f"the gap between the top two scores is {gap}, must be at least 1")


def _compare_predicted(compiled: CompiledMachine, expected: Segments, form: Form) -> None:
    import torch

    from compile_tm.runtime.transformer import TorchTransformer

    blueprint, options = make_blueprint(compiled, form.positions), form.softmax
    model = TorchTransformer(
        compiled.program,
        None if options is None else _convert(blueprint, expected, options),
        rope=blueprint.rope,
        points=None if options is None else options.points,
    )
    tokens = torch.zeros(len(expected), max(len(ids) for ids, _ in expected) - 1, dtype=torch.int64)
    for row, (ids, _) in zip(tokens, expected, strict=True):
        # Attention is causal, so padding after a shorter segment has no effect.
        row[: len(ids) - 1] = torch.from_numpy(ids[:-1].astype(np.int64))
    scores, best = model(tokens).topk(2)
    gaps, predicted = (scores[..., 0] - scores[..., 1]).numpy(), best[..., 0].numpy()
    for number, (ids, prompt_length) in enumerate(expected):
        new = slice(prompt_length - 1, len(ids) - 1)
        _compare_tokens(
            compiled, number, prompt_length, predicted[number, new], ids[prompt_length:]
        )
        # Guaranteed by the proof of Theorem "hardtosoft"; with denoising the gap is 1.
        gap = gaps[number, new].min()
        _check(gap >= 1 / 2, f"the gap between the top two scores is {gap}, must be at least 1/2")


def _compare_tokens(
    compiled: CompiledMachine,
    number: int,
    start: int,
    got: npt.NDArray[np.integer],
    expected: npt.NDArray[np.integer],
) -> None:
    """Compare the tokens of a segment from position `start`."""
    differing = np.flatnonzero(got != expected)
    if len(differing):
        place = int(differing[0])
        raise AssertionError(
            f"segment {number + 1}, position {start + place}: generated "
            f"{compiled.vocabulary.token(int(got[place]))}, must be "
            f"{compiled.vocabulary.token(int(expected[place]))}"
        )


def _check(condition: object, message: str) -> None:
    """Raise `AssertionError` unless a condition holds, also with `python -O`."""
    if not condition:
        raise AssertionError(message)


def _convert(blueprint: Blueprint, expected: Segments, options: SoftmaxOptions) -> Conversion:
    ties = None
    if options.where is Denoising.TIES:
        ties = layers_with_ties(blueprint.program, [ids for ids, _ in expected])
    return convert(
        blueprint, options.conversion, points=options.points, where=options.where, tie_layers=ties
    )


def _use_one_thread() -> None:
    """Limit torch to one thread, to avoid oversubscription by several workers."""
    import torch

    torch.set_num_threads(1)
