"""Text of a run: a line for each step with its state and tapes, heads in brackets."""

from __future__ import annotations

from collections.abc import Iterator

from compile_tm.machines.interpreter import Run


def run_lines(run: Run, *, max_lines: int | None = None) -> Iterator[str]:
    """Yield a line for each configuration C_0 .. C_t and a last line with the status of the run.

    Args:
        run: A recorded run.
        max_lines: Number of configurations to show; None shows all.

    Raises:
        ValueError: the run was not recorded.
    """
    machine, rows, heads = run.machine, run.recorded_rows.tolist(), run.heads
    low, width = int(heads.min()), run.space
    tapes = [[machine.blank] * width for _ in range(machine.num_tapes)]
    tapes[0][-low : len(run.word) - low] = run.word
    state, digits = machine.initial_state, len(str(run.num_steps))
    name_width = max(map(len, machine.states))
    num_shown = len(rows) + 1 if max_lines is None else min(max_lines, len(rows) + 1)
    for step in range(num_shown):
        places = (heads[step] - low).tolist()
        shown = " | ".join(_tape(tape, place) for tape, place in zip(tapes, places, strict=True))
        yield f"{step:>{digits}}  {state:<{name_width}}  {shown}"
        if step < len(rows):
            row = rows[step]
            state = machine.states[machine.table.next_state[row]]
            for tape, place, symbol in zip(
                tapes, places, machine.table.write[row].tolist(), strict=True
            ):
                tape[place] = machine.tape_alphabet[symbol]
    if num_shown <= len(rows):
        yield f"... {len(rows) + 1 - num_shown:,} more"
    yield f"{run.status.value} after {run.num_steps:,} steps in {run.space:,} cells, {_result(run)}"


def _tape(tape: list[str], place: int) -> str:
    return "".join(
        f"[{symbol}]" if cell == place else f" {symbol} " for cell, symbol in enumerate(tape)
    )


def _result(run: Run) -> str:
    return "no output" if run.output is None else f"output {' '.join(run.output) or '(empty)'}"
