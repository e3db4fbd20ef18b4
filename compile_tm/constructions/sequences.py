"""Token sequences of the paper's definitions: toks(M, w, r) for CoT and segments for SCoT.

A run of t steps is written as t run tokens. After every r of them, unless the run or the segment
ends there, a block of r + 2 tokens states the head positions bit by bit. The trace of a segment
ends when the machine halts, or with the first run token at which it has at least
3 (|previous summary| - 1) tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.tokens import Delimiter
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.machines.interpreter import DEFAULT_MAX_STEPS, Run, Status, run_machine
from compile_tm.machines.turing import TuringMachine

Ids = npt.NDArray[np.int32]
MIN_BITS: dict[Mode, int] = {"cot": 2, "scot": 4}
MAX_BITS = 40


def check_bits(bits: int, *, mode: Mode) -> None:
    """Check that the theorems apply to r.

    Raises:
        ValueError: r is odd, too small, or too large for 64-bit integers.
    """
    if bits % 2 or not MIN_BITS[mode] <= bits <= MAX_BITS:
        raise ValueError(
            f"bits: got {bits}, allowed for {mode} are even numbers from {MIN_BITS[mode]} to "
            f"{MAX_BITS}"
        )


def checked_run(
    machine: TuringMachine, word: str | Sequence[str], *, max_steps: int = DEFAULT_MAX_STEPS
) -> Run:
    """Run a machine on a word and require that it halts with an output.

    Raises:
        ValueError: it does not; the message names the state and the symbols under the heads.
    """
    run = run_machine(machine, word, max_steps=max_steps)
    if run.status is not Status.HALTED:
        cells = [
            machine.tape_alphabet[run.tapes[k, head]] for k, head in enumerate(run.final_heads)
        ]
        raise ValueError(
            f"{machine.name} does not halt: {run.status.value} after {run.num_steps:,} steps in "
            f"state {run.final_state!r} on {', '.join(cells)}"
        )
    if run.output is None:
        symbols = [machine.tape_alphabet[symbol] for symbol in run.tapes[0].tolist()]
        raise ValueError(
            f"{machine.name} halts without output: tape 1 holds {' '.join(symbols)}, allowed are "
            "input symbols and then blanks"
        )
    return run


def cot_length(run: Run, *, bits: int) -> int:
    """Return |toks(M, w, r)|."""
    return _trace_length(run.num_steps, bits) + len(run.word) + 4 + len(_output(run))


def cot_ids(vocabulary: TmVocabulary, run: Run, *, bits: int) -> Ids:
    """Return toks(M, w, r)."""
    trace = _trace_ids(vocabulary, run, 0, run.num_steps, bits)
    prompt = vocabulary.input_ids(run.word)
    return np.concatenate([prompt, trace, _output_ids(vocabulary, run)])


def scot_segments(vocabulary: TmVocabulary, run: Run, *, bits: int) -> Iterator[tuple[Ids, int]]:
    """Yield the segments seg_1, seg_2, .. with the lengths of their prompts."""
    machine, heads = run.machine, run.heads
    space = np.maximum(np.maximum.accumulate(heads.max(axis=1) + 1), len(run.word))
    tapes = np.full(
        (machine.num_tapes, run.space), machine.symbol_ids[machine.blank], dtype=np.int64
    )
    tapes[0, : len(run.word)] = [machine.symbol_ids[symbol] for symbol in run.word]
    written = machine.table.write[run.recorded_rows]
    prompt, start = vocabulary.input_ids(run.word), 0
    while True:
        stop = min(start + _steps_to(3 * (len(prompt) - 1), bits), run.num_steps)
        trace = _trace_ids(vocabulary, run, start, stop, bits)
        if stop == run.num_steps:
            yield np.concatenate([prompt, trace, _output_ids(vocabulary, run)]), len(prompt)
            return
        for k in range(machine.num_tapes):
            # numpy keeps the last of several writes to one cell.
            tapes[k, heads[start:stop, k]] = written[start:stop, k]
        state = int(machine.table.next_state[run.recorded_rows[stop - 1]])
        summary = _summary_ids(vocabulary, tapes[:, : int(space[stop])], heads[stop], state)
        yield np.concatenate([prompt, trace, summary]), len(prompt)
        prompt, start = summary, stop


def min_bits(run: Run, *, mode: Mode) -> int:
    """Return the smallest even r such that no sequence of a run exceeds 2^r tokens.

    Raises:
        ValueError: it is greater than `MAX_BITS`.
    """
    vocabulary = TmVocabulary(machine=run.machine, mode=mode, reachable_only=True)
    for bits in range(MIN_BITS[mode], MAX_BITS + 1, 2):
        if mode == "cot":
            longest = cot_length(run, bits=bits)
        else:
            longest = max(len(ids) for ids, _ in scot_segments(vocabulary, run, bits=bits))
        if longest <= 1 << bits:
            return bits
    raise ValueError(f"the run needs more than {MAX_BITS} bits")


def check_enough_bits(run: Run, *, mode: Mode, bits: int) -> None:
    """Check that r suffices for a run.

    Raises:
        ValueError: it does not; the message names the smallest r that does.
    """
    check_bits(bits, mode=mode)
    needed = min_bits(run, mode=mode)
    if bits < needed:
        raise ValueError(
            f"bits: got {bits}, but {mode} of this run ({run.num_steps:,} steps, {run.space:,} "
            f"cells) needs at least {needed}"
        )


def _trace_length(num_steps: int, bits: int) -> int:
    return num_steps + (bits + 2) * max(0, (num_steps - 1) // bits)


def _steps_to(length: int, bits: int) -> int:
    """Minimum number of run tokens, at least 1, with a trace of at least `length` tokens.

    A period of r run tokens and a block has 2r + 2 tokens. A trace ends with a run token, so a
    length within a block requires the first run token after it.
    """
    periods, rest = divmod(length, 2 * bits + 2)
    return periods * bits + max(1, min(rest, bits + 1))


def _trace_ids(vocabulary: TmVocabulary, run: Run, start: int, stop: int, bits: int) -> Ids:
    """Return the run tokens of steps start + 1 .. stop, with blocks of head positions."""
    steps = vocabulary.run_ids[run.recorded_rows[start:stop]]
    num_blocks = max(0, (stop - start - 1) // bits)
    times = start + bits * np.arange(1, num_blocks + 1)
    tape_bits = run.heads[times, None, :] >> np.arange(bits)[:, None] & 1
    block = np.empty((num_blocks, 2 * bits + 2), dtype=np.int32)
    block[:, :bits] = steps[: num_blocks * bits].reshape(num_blocks, bits)
    block[:, bits] = vocabulary.delimiter_id(Delimiter.POS)
    block[:, bits + 1 : -1] = tape_bits @ (1 << np.arange(run.machine.num_tapes))
    block[:, bits + 1 : -1] += vocabulary.positions.start
    block[:, -1] = vocabulary.delimiter_id(Delimiter.EPOS)
    return np.concatenate([block.ravel(), steps[num_blocks * bits :]])


def _output(run: Run) -> tuple[str, ...]:
    if run.output is None:
        raise ValueError(f"{run.machine.name} has no output on this word")
    return run.output


def _output_ids(vocabulary: TmVocabulary, run: Run) -> Ids:
    first, last = map(vocabulary.delimiter_id, (Delimiter.OUTP, Delimiter.EOUTP))
    return np.array([first, *vocabulary.symbol_ids(_output(run)), last], dtype=np.int32)


def _summary_ids(
    vocabulary: TmVocabulary,
    tapes: npt.NDArray[np.int64],
    heads: npt.NDArray[np.int64],
    state: int,
) -> Ids:
    """Return the summary of a configuration: tapes (K, s_t), head positions (K,), state."""
    num_tapes, num_cells = tapes.shape
    num_symbols = len(vocabulary.machine.tape_alphabet)
    has_head = np.arange(num_cells) == heads[:, None]
    weights = (2 * num_symbols) ** np.arange(num_tapes - 1, -1, -1)
    first, last = map(vocabulary.delimiter_id, (Delimiter.SUMM, Delimiter.ESUMM))
    cells = weights @ (tapes + num_symbols * has_head) + vocabulary.cells.start
    return np.array([first, *cells, vocabulary.states.start + state, last], dtype=np.int32)
