"""Test cases for conversions: constructions with long sequences, and their first failure.

The reference is the trace of the hardmax program (`runtime.trace`). A converted transformer fails
on a case if it predicts a wrong token. By the proofs of the theorems, some activation then differs
from the hardmax activation by more than the allowed error; the first such activation in the lowest
layer, at or before the position of the token, is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from compile_tm.constructions.compiled import (
    Compiled,
    CompiledMachine,
    compile_dfa,
    compile_machine,
)
from compile_tm.constructions.sequences import Ids, cot_ids, scot_segments
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.rope.compose import rope_weights
from compile_tm.conversion.rope.stack import RopeWeights
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.machines.examples import multiples, sorting
from compile_tm.machines.interpreter import run_machine
from compile_tm.measure.failures import Failure, distances, first_failure
from compile_tm.program.program import Program
from compile_tm.runtime.trace import Trace, trace_program
from compile_tm.runtime.transformer import Snapshot, TorchTransformer
from compile_tm.sudoku.compiled import CompiledSudoku

_MOST_SEGMENTS = 3
MOST_TOKENS = 1024
"""Default maximum number of tokens of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A compiled machine or solver, with the traces of some sequences."""

    name: str
    """Construction: `DFA`, `CoT`, `SCoT`, or a board's solver."""
    compiled: Compiled | CompiledSudoku
    """Compiled machine or solver."""
    traces: tuple[Trace, ...]
    """Trace of each sequence, without its last token."""
    prompt_lengths: tuple[int, ...]
    """Prompt length of each sequence."""
    rope: RopeWeights | None = None
    """Weights with a stack that extracts positions; None for a positional embedding."""

    @property
    def program(self) -> Program:
        """Hardmax transformer."""
        return self.compiled.program

    @property
    def blueprint(self) -> Blueprint:
        """Hardmax transformer, including the stack if there is one."""
        return Blueprint(program=self.program, rope=self.rope)

    @property
    def bits(self) -> int:
        """Number of position bits r."""
        return self.compiled.bits

    @property
    def num_tokens(self) -> int:
        """Tokens of the longest sequence."""
        return max(len(trace.ids) for trace in self.traces)

    @property
    def length(self) -> int:
        """Maximum sequence length N = 2^r of the theorems."""
        return self.program.max_positions


def dfa_case(bits: int, *, most_tokens: int = MOST_TOKENS) -> Case:
    """Return a DFA case (multiples of 3) on a random word of maximum length."""
    dfa = multiples(3)
    compiled = compile_dfa(dfa, bits=bits)
    rng = np.random.default_rng(bits)
    num_symbols = min(compiled.program.max_positions, most_tokens) - 1
    word = [dfa.alphabet[n] for n in rng.integers(len(dfa.alphabet), size=num_symbols)]
    trace = trace_program(compiled.program, compiled.vocabulary.input_ids(word))
    return Case(name="DFA", compiled=compiled, traces=(trace,), prompt_lengths=(1,))


def machine_case(bits: int, *, mode: Mode, most_tokens: int = MOST_TOKENS) -> Case:
    """Return a Turing machine case: sorting the longest word whose sequences fit.

    Args:
        bits: Number of position bits r, even.
        mode: `cot`, or `scot` with up to three segments.
        most_tokens: Maximum number of tokens of all sequences; each has at most 2^r.

    Raises:
        ValueError: r is odd or too small.
    """
    compiled = compile_machine(sorting(), mode=mode, bits=bits, reachable_only=True)
    room = min(compiled.program.max_positions, most_tokens)
    found: list[tuple[Ids, int]] = []
    for size in range(room):
        segments = _sorting_segments(compiled, ("cba" * size)[:size])
        if max(len(ids) for ids, _ in segments) > room:
            break
        found = segments
    if not found:
        raise ValueError(f"bits: got {bits}, too small for any word")
    longest = sorted(found, key=lambda segment: -len(segment[0]))
    longest = longest[: min(_MOST_SEGMENTS, most_tokens // len(longest[0][0]))]
    return Case(
        name="CoT" if mode == "cot" else "SCoT",
        compiled=compiled,
        traces=tuple(trace_program(compiled.program, ids[:-1]) for ids, _ in longest),
        prompt_lengths=tuple(prompt_length for _, prompt_length in longest),
    )


def all_cases(bits: int, *, most_tokens: int = MOST_TOKENS) -> tuple[Case, Case, Case]:
    """Return the DFA, CoT and SCoT cases for r; see `machine_case`."""
    return (
        dfa_case(bits, most_tokens=most_tokens),
        machine_case(bits, mode="cot", most_tokens=most_tokens),
        machine_case(bits, mode="scot", most_tokens=most_tokens),
    )


def without_embedding(case: Case) -> Case:
    """Return the case with rotary embeddings instead of a positional embedding.

    Raises:
        ValueError: the case is a Sudoku solver.
    """
    if isinstance(case.compiled, CompiledSudoku):
        raise ValueError(f"case: got {case.name}, allowed are automata and Turing machines")
    return replace(case, rope=rope_weights(case.compiled))


def _sorting_segments(compiled: CompiledMachine, word: str) -> list[tuple[Ids, int]]:
    """Return sequences and prompt lengths, which may exceed 2^r tokens."""
    run = run_machine(compiled.machine, word)
    if compiled.mode == "cot":
        return [(cot_ids(compiled.vocabulary, run, bits=compiled.bits), len(word) + 2)]
    return list(scot_segments(compiled.vocabulary, run, bits=compiled.bits))


def find_failure(case: Case, conversion: Conversion, points: RoundingPoints) -> Failure | None:
    """Run a converted transformer in float32, which represents the values of all tested formats.

    Returns:
        None if all tokens are correct, even if some activations exceed the allowed error.
    """
    model = TorchTransformer(case.program, conversion, rope=case.rope, points=points)
    for number, trace in enumerate(case.traces):
        seen: list[Snapshot] = []
        scores = model(_tensor(trace.ids), seen=seen)
        predicted = scores[0].argmax(dim=-1).numpy()
        start = case.prompt_lengths[number] - 1
        differing = np.flatnonzero(predicted[start:] != trace.predicted[start:])
        if len(differing):
            failure = first_failure(
                seen,
                trace.streams if case.rope is None else _rope_streams(case, trace.ids),
                blueprint=case.blueprint,
                conversion=conversion,
                token_position=int(differing[0]) + start,
            )
            assert failure is not None, "a token is wrong, but no activation exceeds its bound"
            return failure
    return None


def snapshots(case: Case, conversion: Conversion, points: RoundingPoints) -> list[list[Snapshot]]:
    """Return the residual streams of a converted transformer for each sequence, in float64."""
    model = TorchTransformer(case.program, conversion, points=points, dtype=torch.float64)
    found: list[list[Snapshot]] = []
    for trace in case.traces:
        found.append([])
        model(_tensor(trace.ids), seen=found[-1])
    return found


def error_of(snapshot: Snapshot, trace: Trace) -> npt.NDArray[np.float64]:
    """Return the absolute differences (n, d) from the hardmax stream after the same sublayer."""
    return distances(snapshot, trace.streams)


def _rope_streams(case: Case, ids: npt.NDArray[np.int32]) -> list[npt.NDArray[np.floating]]:
    return TorchTransformer(case.program, rope=case.rope).streams(ids)


def _tensor(ids: npt.NDArray[np.int32]) -> torch.Tensor:
    return torch.from_numpy(ids[None].astype(np.int64))
