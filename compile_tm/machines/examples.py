"""Example machines; `EXAMPLES` maps the names on the command line to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from compile_tm.machines.dfa import Dfa, from_function
from compile_tm.machines.turing import TuringMachine, make_rules

Row = tuple[str, str, str, str, str]


def parity() -> Dfa:
    """Automaton for words over 0 and 1 with an even number of ones."""
    moves = {("even", "0"): "even", ("even", "1"): "odd", ("odd", "0"): "odd", ("odd", "1"): "even"}
    return from_function(
        ("even", "odd"), ("0", "1"), accepting=("even",), transitions=moves, name="parity"
    )


def multiples(divisor: int, *, base: int = 2) -> Dfa:
    """Automaton for multiples of `divisor` in a base up to 10, most significant digit first."""
    states, digits = [f"r{n}" for n in range(divisor)], [str(n) for n in range(base)]
    moves = {
        (states[n], digits[digit]): states[(n * base + digit) % divisor]
        for n in range(divisor)
        for digit in range(base)
    }
    return from_function(
        states, digits, accepting=states[:1], transitions=moves, name=f"multiples of {divisor}"
    )


def one_way_machine(
    name: str, rows: list[Row], *, symbols: str, inputs: str, num_tapes: int = 1
) -> TuringMachine:
    """Make a machine of rows, with blank `_` and halting state `halt`.

    The initial state is that of the first row; see `make_rules` on rows.
    """
    states = dict.fromkeys([*(row[0] for row in rows), *(row[2] for row in rows), "halt"])
    return TuringMachine(
        name=name,
        num_tapes=num_tapes,
        states=tuple(states),
        input_alphabet=tuple(inputs),
        tape_alphabet=tuple("_" + symbols),
        blank="_",
        initial_state=rows[0][0],
        halting_state="halt",
        rules=make_rules(rows, tape_alphabet="_" + symbols, num_tapes=num_tapes),
    )


def unary_increment() -> TuringMachine:
    """Map 1^n to 1^(n+1)."""
    rows = [("right", "1", "right", "1", "R"), ("right", "_", "halt", "1", "S")]
    return one_way_machine("unary increment", rows, symbols="1", inputs="1")


def binary_increment() -> TuringMachine:
    """Increment a binary number, most significant digit first.

    Cell 0 is marked (`a` for 0, `b` for 1), so that the carry detects the end of the tape. If it
    gets there, all digits are 0 and one digit is appended.
    """
    rows = [
        ("start", "0", "right", "a", "R"),
        ("start", "1", "right", "b", "R"),
        ("start", "_", "halt", "1", "S"),
        ("right", "_", "carry", "_", "L"),
        ("right", "0", "right", "0", "R"),
        ("right", "1", "right", "1", "R"),
        ("carry", "1", "carry", "0", "L"),
        ("carry", "0", "unmark", "1", "L"),
        ("carry", "a", "halt", "1", "S"),
        ("carry", "b", "append", "1", "R"),
        ("unmark", "0", "unmark", "0", "L"),
        ("unmark", "1", "unmark", "1", "L"),
        ("unmark", "a", "halt", "0", "S"),
        ("unmark", "b", "halt", "1", "S"),
        ("append", "0", "append", "0", "R"),
        ("append", "_", "halt", "0", "S"),
    ]
    return one_way_machine("binary increment", rows, symbols="01ab", inputs="01")


def binary_addition() -> TuringMachine:
    """Add two binary numbers `x+y`, most significant digit first, on three tapes.

    The numbers are copied to tapes 2 and 3. The sum is written to tape 1, least significant digit
    first, reversed onto tape 2 and copied back to tape 1.
    """
    rows: list[Row] = [("start", f"{d}__", "first", f"{d}^^", "SRR") for d in "01+"]
    for d in "01":
        rows += [("first", f"{d}__", "copy x", f"^{d}_", "RRS")]
        rows += [("copy x", f"{d}__", "copy x", f"_{d}_", "RRS")]
        rows += [("copy y", f"{d}__", "copy y", f"__{d}", "RSR")]
    rows += [("first", "+__", "copy y", "^__", "RSS"), ("copy x", "+__", "copy y", "___", "RSS")]
    rows += [("copy y", "___", "home", "___", "LLL")]
    rows += [("home", "^**", "add 0", "===", "RSS"), ("home", "***", "home", "===", "LSS")]
    for carry in (0, 1):
        for x in "01^":
            for y in "01^":
                total = carry + (x == "1") + (y == "1")
                moves = "R" + ("S" if x == "^" else "L") + ("S" if y == "^" else "L")
                if x == y == "^":
                    written, after, moves = (
                        ("_", "turn", "LRS") if carry == 0 else ("1", "turn", "SRS")
                    )
                else:
                    written, after = str(total % 2), f"add {total // 2}"
                rows += [(f"add {carry}", f"_{x}{y}", after, f"{written}==", moves)]
    for d in "01":
        rows += [("turn", f"{d}**", "turn", f"_{d}=", "LRS")]
        rows += [("write", f"_{d}*", "write", f"{d}==", "RRS")]
    rows += [("turn", "^**", "back", "_==", "SLS")]
    rows += [("back", "_^*", "write", "===", "SRS"), ("back", "_**", "back", "===", "SLS")]
    rows += [("write", "__*", "halt", "===", "SSS")]
    return one_way_machine("binary addition", rows, symbols="01+^", inputs="01+", num_tapes=3)


def unary_multiplication() -> TuringMachine:
    """Map `1^a x 1^b`, without the blanks, to 1^(ab), on three tapes.

    b is copied to tape 2 and appended to tape 3 a times.
    """
    rows: list[Row] = [
        ("start", "1__", "right", "a^^", "RRR"),
        ("start", "x__", "copy", "^^^", "RRR"),
        ("right", "1__", "right", "===", "RSS"),
        ("right", "x__", "copy", "___", "RSS"),
        ("copy", "1__", "copy", "_1_", "RRS"),
        ("copy", "___", "next", "===", "LLS"),
        ("next", "_**", "next", "===", "LSS"),
        ("next", "1**", "sweep", "_==", "SSS"),
        ("next", "a**", "sweep", "^==", "SSS"),
        ("next", "^**", "home", "_==", "SSL"),
        ("sweep", "*1_", "sweep", "==1", "SLR"),
        ("sweep", "*^_", "back", "===", "SRS"),
        ("back", "*1*", "back", "===", "SRS"),
        ("back", "*_*", "next", "===", "SLS"),
        ("home", "_*^", "write", "===", "SSR"),
        ("home", "_**", "home", "===", "SSL"),
        ("write", "_*1", "write", "1==", "RSR"),
        ("write", "_*_", "halt", "===", "SSS"),
    ]
    return one_way_machine("unary multiplication", rows, symbols="1xa^", inputs="1x", num_tapes=3)


def palindromes() -> TuringMachine:
    """Output `y` for palindromes over a and b, else `n`.

    Tape 2 holds a copy that is read forward while tape 1 is read and erased backward.
    """
    rows: list[Row] = [(q, f"{c}_", "mark", "=^", "SR") for q in ("start",) for c in "ab_"]
    for c in "ab":
        rows += [("mark", f"{c}_", "mark", f"={c}", "RR"), ("same", f"{c}{c}", "same", "_=", "LR")]
    rows += [
        ("mark", "__", "rewind", "==", "LL"),
        ("rewind", "*^", "same", "==", "SR"),
        ("rewind", "**", "rewind", "==", "SL"),
        ("same", "*_", "halt", "y=", "SS"),
        ("same", "**", "other", "_=", "LR"),
        ("other", "*_", "halt", "n=", "SS"),
        ("other", "**", "other", "_=", "LR"),
    ]
    return one_way_machine("palindromes", rows, symbols="abyn^", inputs="abyn", num_tapes=2)


def sorting(letters: str = "abc") -> TuringMachine:
    """Sort the letters of a word by gnome sort, which steps back after every swap.

    At cell 0 the head cannot step back and reads the same cell again, which changes nothing.
    """
    rows: list[Row] = [("look", "_", "halt", "_", "S")]
    for x in letters:
        rows += [("look", x, f"seen {x}", x, "R"), (f"seen {x}", "_", "halt", "_", "S")]
        rows += [(f"put {x}", "*", "look", x, "L")]
        for y in letters:
            ordered = (f"seen {x}", y, f"seen {y}", y, "R")
            rows += [ordered if y >= x else (f"seen {x}", y, f"put {y}", x, "L")]
    used = {row[0] for row in rows if not row[0].startswith("put")} | {row[2] for row in rows}
    rows = [row for row in rows if row[0] in used]
    return one_way_machine("sorting", rows, symbols=letters, inputs=letters)


def two_tape_copy(letters: str = "01") -> TuringMachine:
    """Repeat a word twice."""
    rows: list[Row] = [("start", "*_", "copy", "=^", "SR")]
    for c in letters:
        rows += [
            ("copy", f"{c}_", "copy", f"={c}", "RR"),
            ("append", f"_{c}", "append", f"{c}=", "RR"),
        ]
    rows += [("copy", "__", "rewind", "==", "SL")]
    rows += [("rewind", "_^", "append", "==", "SR"), ("rewind", "_*", "rewind", "==", "SL")]
    rows += [("append", "__", "halt", "==", "SS")]
    return one_way_machine(
        "two-tape copy", rows, symbols=letters + "^", inputs=letters, num_tapes=2
    )


BUSY_BEAVERS = {
    3: "1RB1RH 1LB0RC 1LC1LA",
    4: "1RB1LB 1LA0LC 1RH1LD 1RD0RA",
    5: "1RB1LC 1RC1RB 1RD0LE 1LA1LD 1RH0LA",
}
"""Longest-running machines of n states and 2 symbols (21, 107 and 47,176,870 steps).

For each state: symbol written, movement and next state, on 0 and on 1; H halts.
"""


def busy_beaver(num_states: int) -> TuringMachine:
    """Return the busy beaver of 3, 4 or 5 states, for two-way tapes (see `folding`).

    The blank `_` is read as 0, so that the final tape is a word over 0 and 1.

    Raises:
        ValueError: another number of states.
    """
    if num_states not in BUSY_BEAVERS:
        raise ValueError(f"num_states: got {num_states}, allowed are {sorted(BUSY_BEAVERS)}")
    rows: list[Row] = []
    for state, actions in zip("ABCDE", BUSY_BEAVERS[num_states].split(), strict=False):
        for read, action in (("_", actions[:3]), ("0", actions[:3]), ("1", actions[3:])):
            target = "halt" if action[2] == "H" else action[2]
            rows.append((state, read, target, action[0], action[1]))
    return one_way_machine(f"busy beaver {num_states}", rows, symbols="01", inputs="01")


@cache
def example(name: str) -> TuringMachine | Dfa:
    """Return an example by its name.

    Raises:
        ValueError: no such example.
    """
    if name not in EXAMPLES:
        raise ValueError(f"example: got {name!r}, allowed are {', '.join(sorted(EXAMPLES))}")
    return EXAMPLES[name]()


EXAMPLES: dict[str, Callable[[], TuringMachine | Dfa]] = {
    "parity": parity,
    "multiples-of-3": lambda: multiples(3),
    "unary-increment": unary_increment,
    "binary-increment": binary_increment,
    "binary-addition": binary_addition,
    "unary-multiplication": unary_multiplication,
    "palindromes": palindromes,
    "sorting": sorting,
    "two-tape-copy": two_tape_copy,
    "busy-beaver-3": lambda: busy_beaver(3),
    "busy-beaver-4": lambda: busy_beaver(4),
    "busy-beaver-5": lambda: busy_beaver(5),
}
