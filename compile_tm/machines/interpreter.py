"""Interpreter of Turing machines, the reference for all compiled forms.

A run records the number of the applied rule for each step; states, symbols, head positions and
space are derived from it by array operations. With `record=False` only the final configuration is
kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compile_tm.jit import kernel
from compile_tm.machines.turing import TuringMachine

LeftEdge = Literal["stay", "error", "two-way"]
DEFAULT_MAX_STEPS = 1_000_000
_RUNNING, _HALTED, _STUCK, _AT_EDGE, _OFF_TAPE, _FULL = range(6)


class Status(Enum):
    """Reason why a run ended."""

    HALTED = "halted"
    """In the halting state."""
    STUCK = "stuck"
    """In the stuck state, or because of a missing rule."""
    STEP_LIMIT = "step limit"
    """After `max_steps` steps."""
    LEFT_EDGE = "left edge"
    """Before a movement to the left of cell 0, with `left_edge="error"`."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a machine, configurations C_0 .. C_t."""

    machine: TuringMachine
    """The machine."""
    word: tuple[str, ...]
    """The input."""
    status: Status
    """Reason why it ended."""
    num_steps: int
    """t."""
    final_state: str
    """State after the last step."""
    final_heads: npt.NDArray[np.int64]
    """(K,) head positions after the last step, negative on two-way tapes only."""
    tapes: npt.NDArray[np.int16]
    """(K, cells) symbols after the last step, from cell `first_cell` on."""
    first_cell: int
    """Cell of the first column of `tapes`: 0, or negative on two-way tapes."""
    space: int
    """s_M(w): number of cells from the first to the last that a head or the input touched."""
    rule_rows: npt.NDArray[np.int32] | None
    """(t,) row of `TuringMachine.table` applied by each step; None if not recorded."""
    left_edge: LeftEdge
    """See `run_machine`."""

    @cached_property
    def heads(self) -> npt.NDArray[np.int64]:
        """(t + 1, K) head positions n_t.

        With steps d_1, d_2, .. the positions n_t = max(0, n_{t-1} + d_t) are, by Lindley's
        recursion, S_t - min(0, min_{s <= t} S_s) with the sums S_t = d_1 + .. + d_t.
        """
        sums = np.zeros((self.num_steps + 1, self.machine.num_tapes), dtype=np.int64)
        np.cumsum(self.machine.table.step[self.recorded_rows], axis=0, out=sums[1:])
        if self.left_edge == "two-way":
            return sums
        lowest: npt.NDArray[np.int64] = np.minimum.accumulate(sums, axis=0)
        positions: npt.NDArray[np.int64] = sums - np.minimum(0, lowest)
        return positions

    @property
    def recorded_rows(self) -> npt.NDArray[np.int32]:
        """`rule_rows` of a recorded run.

        Raises:
            ValueError: the run was not recorded.
        """
        if self.rule_rows is None:
            raise ValueError("the run was not recorded: run_machine(..., record=True)")
        return self.rule_rows

    @cached_property
    def output(self) -> tuple[str, ...] | None:
        """f_M(w): tape 1 without trailing blanks; None if the run has no output.

        A run has no output if it did not halt, or if tape 1 has a blank before another symbol or a
        symbol outside the input alphabet.
        """
        if self.status is not Status.HALTED:
            return None
        names = [self.machine.tape_alphabet[symbol] for symbol in self.tapes[0].tolist()]
        while names and names[-1] == self.machine.blank:
            names.pop()
        touched = names if self.first_cell == 0 else names[-self.first_cell :]
        is_word = set(names) <= set(self.machine.input_alphabet)
        return tuple(touched) if is_word and len(touched) == len(names) else None


def run_machine(
    machine: TuringMachine,
    word: str | Sequence[str] = (),
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    record: bool = True,
    left_edge: LeftEdge = "stay",
) -> Run:
    """Run a machine on a word.

    Args:
        machine: The machine.
        word: Its input.
        max_steps: Maximum number of steps.
        record: Record the rule of every step (4 bytes a step).
        left_edge: Effect of a movement to the left of cell 0: `stay` leaves the head there, as in
            the paper; `error` ends the run; `two-way` continues on a two-way infinite tape.

    Raises:
        ValueError: a symbol outside the input alphabet, or a negative limit.
    """
    if max_steps < 0:
        raise ValueError(f"max_steps: got {max_steps}, must be at least 0")
    symbols = machine.word(word)
    table, blank = machine.table, machine.symbol_ids[machine.blank]
    is_two_way = left_edge == "two-way"
    tapes = np.full((machine.num_tapes, max(64, 2 * len(symbols))), blank, dtype=np.int16)
    tapes[0, : len(symbols)] = [machine.symbol_ids[symbol] for symbol in symbols]
    ends = np.array([machine.state_ids[machine.halting_state], -1])
    if machine.stuck_state is not None:
        ends[1] = machine.state_ids[machine.stuck_state]
    rows = np.empty(min(max_steps, 1 << 16) if record else 0, dtype=np.int32)
    state = np.array([machine.state_ids[machine.initial_state], 0], dtype=np.int64)
    heads = np.zeros((3, machine.num_tapes), dtype=np.int64)
    edge = {"stay": 0, "error": 1, "two-way": 2}[left_edge]
    first_cell = 0
    while True:
        limit = min(max_steps, len(rows)) if record else max_steps
        code = _steps(
            table, len(machine.tape_alphabet), ends, edge, limit, tapes, heads, state, rows
        )
        if code == _OFF_TAPE:
            tapes, heads, first_cell = _grow(tapes, heads, first_cell, blank, is_two_way)
        elif code == _FULL and record and state[1] < max_steps:
            rows = np.concatenate([rows, np.empty(min(len(rows), max_steps - len(rows)), np.int32)])
        else:
            break
    low = min(0, int(heads[1].min()) + first_cell)
    high = max(len(symbols) - 1, int(heads[2].max()) + first_cell)
    status = {
        _HALTED: Status.HALTED,
        _STUCK: Status.STUCK,
        _AT_EDGE: Status.LEFT_EDGE,
        _FULL: Status.STEP_LIMIT,
    }[code]
    return Run(
        machine=machine,
        word=symbols,
        status=status,
        num_steps=int(state[1]),
        final_state=machine.states[int(state[0])],
        final_heads=heads[0] + first_cell,
        tapes=tapes[:, low - first_cell : high + 1 - first_cell].copy(),
        first_cell=low,
        space=high + 1 - low,
        rule_rows=rows[: int(state[1])].copy() if record else None,
        left_edge=left_edge,
    )


def _grow(
    tapes: npt.NDArray[np.int16],
    heads: npt.NDArray[np.int64],
    first_cell: int,
    blank: int,
    is_two_way: bool,
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], int]:
    """Double the tapes, two-way ones on both sides."""
    extra = tapes.shape[1]
    left = extra if is_two_way else 0
    grown = np.pad(tapes, ((0, 0), (left, extra)), constant_values=blank)
    return grown, heads + left, first_cell - left


@kernel
def _steps(
    table: Any,
    num_symbols: int,
    ends: Any,
    edge: int,
    max_steps: int,
    tapes: Any,
    heads: Any,
    state: Any,
    rows: Any,
) -> int:
    """Run steps until the run, the allocated tape or the limit ends; return which.

    `heads` (3, K) holds current, least and greatest positions, `state` (2,) the state and the
    number of steps. Both are updated in place; a step that cannot be made leaves them unchanged.
    """
    next_state, write, step = table
    num_tapes, num_cells = tapes.shape
    is_recorded = len(rows) > 0
    num_codes = num_symbols**num_tapes
    now, count = state[0], state[1]
    code = _RUNNING
    while code == _RUNNING:
        if now == ends[0]:
            code = _HALTED
            break
        if now == ends[1]:
            code = _STUCK
            break
        if count >= max_steps:
            code = _FULL
            break
        row = 0
        for k in range(num_tapes):
            row = row * num_symbols + tapes[k, heads[0, k]]
        row += now * num_codes
        if next_state[row] < 0:
            code = _STUCK
            break
        for k in range(num_tapes):
            target = heads[0, k] + step[row, k]
            if target >= num_cells or (target < 0 and edge == 2):
                code = _OFF_TAPE
            elif target < 0 and edge == 1:
                code = _AT_EDGE
        if code != _RUNNING:
            break
        for k in range(num_tapes):
            tapes[k, heads[0, k]] = write[row, k]
            target = max(0, heads[0, k] + step[row, k])
            heads[0, k] = target
            heads[1, k] = min(heads[1, k], target)
            heads[2, k] = max(heads[2, k], target)
        now = next_state[row]
        if is_recorded:
            rows[count] = row
        count += 1
    state[0] = now
    state[1] = count
    return code
