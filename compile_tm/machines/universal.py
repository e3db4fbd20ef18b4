"""A universal machine, on three tapes, for machines over 0 and 1 with one tape.

Its input is `^`, the rules of the machine, `;`, and the machine's input. A rule is `#`, state,
symbol read, next state, symbol written, move; state n is n times `i`, the halting state is no `i`
at all, the initial state is one; the blank is `x`. Tape 2 holds `^` and the machine's tape, tape 3
`^` and its state. The output is the machine's tape up to its first blank.
"""

from __future__ import annotations

from collections.abc import Sequence

from compile_tm.machines.examples import Row, one_way_machine
from compile_tm.machines.turing import TuringMachine

_ROWS: list[Row] = [
    # Tape 3 gets the initial state, tape 2 the input.
    ("start", "^__", "find", "^^^", "RRR"),
    ("find", ";__", "load", "=_i", "RSS"),
    ("find", "*__", "find", "===", "RSS"),
    ("load", "0_*", "load", "=0=", "RRS"),
    ("load", "1_*", "load", "=1=", "RRS"),
    ("load", "__*", "first", "===", "SLS"),
    ("first", "*^*", "rewind", "===", "SRS"),
    ("first", "***", "first", "===", "SLS"),
    # Tapes 1 and 3 go back; then rule after rule is compared with state and symbol.
    ("rewind", "^*^", "rule", "===", "RSR"),
    ("rewind", "^**", "rewind", "===", "SSL"),
    ("rewind", "**^", "rewind", "===", "LSS"),
    ("rewind", "***", "rewind", "===", "LSL"),
    ("rule", "#**", "match", "===", "RSS"),
    ("match", "i*i", "match", "===", "RSR"),
    ("match", "00_", "erase", "===", "RSL"),
    ("match", "11_", "erase", "===", "RSL"),
    ("match", "x__", "erase", "===", "RSL"),
    ("match", "***", "skip", "===", "SSS"),
    ("skip", "#*^", "rule", "===", "SSR"),
    ("skip", "#**", "skip", "===", "SSL"),
    ("skip", "**^", "skip", "===", "RSS"),
    ("skip", "***", "skip", "===", "RSL"),
    # The rule is carried out: new state, new symbol, move; the mark on tape 2 bounces the head.
    ("erase", "**i", "erase", "==_", "SSL"),
    ("erase", "**^", "enter", "===", "SSR"),
    ("enter", "i*_", "enter", "==i", "RSR"),
    ("enter", "0**", "move", "=0=", "RSS"),
    ("enter", "1**", "move", "=1=", "RSS"),
    ("enter", "x**", "move", "=_=", "RSS"),
    ("move", "L**", "settle", "===", "SLS"),
    ("move", "S**", "settle", "===", "SSS"),
    ("move", "R**", "settle", "===", "SRS"),
    ("settle", "*^*", "settle", "===", "SRS"),
    ("settle", "***", "check", "===", "SSL"),
    ("check", "**^", "right", "===", "SSS"),
    ("check", "**i", "rewind", "===", "SSS"),
    # Halted: tape 1 is erased from its end, and tape 2 copied to it.
    ("right", "_**", "clear", "===", "LSS"),
    ("right", "***", "right", "===", "RSS"),
    ("clear", "^^*", "write", "_==", "SRS"),
    ("clear", "^**", "clear", "===", "SLS"),
    ("clear", "*^*", "clear", "_==", "LSS"),
    ("clear", "***", "clear", "_==", "LLS"),
    ("write", "_0*", "write", "0==", "RRS"),
    ("write", "_1*", "write", "1==", "RRS"),
    ("write", "__*", "halt", "===", "SSS"),
]


def universal_machine() -> TuringMachine:
    """The universal machine."""
    symbols = "^#;i01xLRS"
    return one_way_machine("universal", _ROWS, symbols=symbols, inputs=symbols, num_tapes=3)


def universal_input(machine: TuringMachine, word: str | Sequence[str]) -> str:
    """Input on which the universal machine does what `machine` does on `word`.

    Raises:
        ValueError: the machine has several tapes, or symbols other than 0, 1 and its blank.
    """
    symbols = {machine.blank: "x", "0": "0", "1": "1"}
    if machine.num_tapes != 1 or not set(machine.tape_alphabet) <= set(symbols):
        raise ValueError(
            f"machine: got {machine.num_tapes} tapes and symbols {machine.tape_alphabet}, "
            "allowed are one tape and the symbols 0, 1 and the blank"
        )
    states = [q for q in machine.states if q != machine.halting_state]
    states.sort(key=lambda q: q != machine.initial_state)
    codes = {q: "i" * (n + 1) for n, q in enumerate(states)} | {machine.halting_state: ""}
    rules = "".join(
        f"#{codes[q]}{symbols[read]}{codes[after]}{symbols[write]}{move}"
        for q, (read,), after, (write,), (move,) in machine.rules
    )
    return f"^{rules};{''.join(machine.word(word))}"
