"""Regular expressions to automata by Brzozowski derivatives.

    expression   term | term | ..          alternatives
    term         factor factor ..          concatenation, possibly empty
    factor       atom, then any of * + ?   zero or more, one or more, zero or one
    atom         symbol  .  (expression)   a backslash escapes any sign, such as [ or *

The states of the automaton are the derivatives of the expression. There are finitely many, since
alternatives are flat sets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from compile_tm.machines.dfa import Dfa, from_function, minimal

Node = tuple["str | Node | frozenset[Node]", ...]
"""("none",), ("empty",), ("symbol", s), ("then", a, b), ("or", frozenset) or ("star", a)."""
MAX_LENGTH, MAX_DEPTH, MAX_STATES = 400, 50, 4096
"""Limits on characters, nesting of brackets, and derivatives."""
_UNSUPPORTED = frozenset("[]{}^$")
_NONE: Node = ("none",)
_EMPTY: Node = ("empty",)


def regex_dfa(expression: str, *, alphabet: Sequence[str]) -> Dfa:
    """Return the minimal automaton of the words that match the whole expression.

    Args:
        expression: See the module docstring.
        alphabet: Symbols, of one character each.

    Raises:
        ValueError: the expression is malformed (the message names the column) or exceeds a limit.
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(
            f"regular expression: got {len(expression)} characters, allowed are {MAX_LENGTH}"
        )
    if any(len(symbol) != 1 for symbol in alphabet):
        raise ValueError(f"alphabet: got {tuple(alphabet)}, allowed are symbols of one character")
    start = _Parser(expression, tuple(alphabet)).parse()
    names = {start: "0"}
    transitions: dict[tuple[str, str], str] = {}
    todo = [start]
    for node in todo:
        for symbol in alphabet:
            target = _derivative(node, symbol)
            if target not in names:
                names[target] = str(len(names))
                todo.append(target)
                if len(todo) > MAX_STATES:
                    raise ValueError(
                        f"regular expression {expression!r}: its automaton has more than "
                        f"{MAX_STATES:,} states"
                    )
            transitions[names[node], symbol] = names[target]
    accepting = [name for node, name in names.items() if _has_empty(node)]
    dfa = from_function(
        tuple(names.values()),
        alphabet,
        accepting=accepting,
        transitions=transitions,
        name=f"regex {expression}",
    )
    return minimal(dfa)


def regex_symbols(expression: str) -> tuple[str, ...]:
    """Return the sorted symbols that occur in an expression."""
    plain = re.findall(r"\\(.)|([^\\|()*+?.])", expression)
    return tuple(sorted({escaped or symbol for escaped, symbol in plain}))


def _either(*nodes: Node) -> Node:
    flat: set[Node] = set()
    for node in nodes:
        flat |= node[1] if node[0] == "or" else {node}  # type: ignore[arg-type]
    flat.discard(_NONE)
    if not flat:
        return _NONE
    return next(iter(flat)) if len(flat) == 1 else ("or", frozenset(flat))


def _then(first: Node, second: Node) -> Node:
    if _NONE in (first, second):
        return _NONE
    if first == _EMPTY:
        return second
    if second == _EMPTY:
        return first
    if first[0] == "then":
        return _then(first[1], _then(first[2], second))  # type: ignore[arg-type]
    return ("then", first, second)


def _star(node: Node) -> Node:
    if node in (_NONE, _EMPTY):
        return _EMPTY
    return node if node[0] == "star" else ("star", node)


def _plus(node: Node) -> Node:
    """Return one or more repetitions; those of repetitions are the same, and not longer."""
    parts, rest = [], node
    while rest[0] == "then":
        parts.append(rest[1])
        rest = rest[2]  # type: ignore[assignment]
    if rest[0] == "star":
        repeated = functools.reduce(lambda end, part: _then(part, end), reversed(parts), _EMPTY)  # type: ignore[arg-type]
        if not parts or repeated == rest[1]:
            return node
    return _then(node, _star(node))


def _has_empty(node: Node) -> bool:
    kind = node[0]
    if kind == "or":
        return any(map(_has_empty, node[1]))  # type: ignore[arg-type]
    if kind == "then":
        return _has_empty(node[1]) and _has_empty(node[2])  # type: ignore[arg-type]
    return kind in ("empty", "star")


def _derivative(node: Node, symbol: str) -> Node:
    """Derivative with respect to a symbol."""
    kind = node[0]
    if kind == "symbol":
        return _EMPTY if node[1] == symbol else _NONE
    if kind == "or":
        return _either(*(_derivative(part, symbol) for part in node[1]))  # type: ignore[arg-type]
    if kind == "star":
        return _then(_derivative(node[1], symbol), node)  # type: ignore[arg-type]
    if kind == "then":
        first: Node = node[1]  # type: ignore[assignment]
        second: Node = node[2]  # type: ignore[assignment]
        taken = _then(_derivative(first, symbol), second)
        return _either(taken, _derivative(second, symbol)) if _has_empty(first) else taken
    return _NONE


class _Parser:
    """Recursive-descent parser."""

    def __init__(self, text: str, alphabet: tuple[str, ...]) -> None:
        self.text, self.alphabet, self.place, self.depth = text, alphabet, 0, 0

    def parse(self) -> Node:
        node = self.expression()
        if self.place < len(self.text):
            raise self.error("unmatched )")
        return node

    def error(self, what: str) -> ValueError:
        return ValueError(f"regular expression {self.text!r}, column {self.place + 1}: {what}")

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self) -> str:
        self.place += 1
        return self.text[self.place - 1]

    def expression(self) -> Node:
        nodes = [self.term()]
        while self.peek() == "|":
            self.take()
            nodes.append(self.term())
        return _either(*nodes)

    def term(self) -> Node:
        node = _EMPTY
        while self.peek() not in ("", "|", ")"):
            node = _then(node, self.factor())
        return node

    def factor(self) -> Node:
        node = self.atom()
        while self.peek() in ("*", "+", "?"):
            sign = self.take()
            node = {"*": _star(node), "+": _plus(node), "?": _either(node, _EMPTY)}[sign]
        return node

    def atom(self) -> Node:
        if self.peek() in ("*", "+", "?"):
            raise self.error(f"nothing to repeat before {self.peek()}")
        sign = self.take()
        if sign == "(":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.error(f"more than {MAX_DEPTH} brackets in each other")
            node = self.expression()
            self.depth -= 1
            if self.peek() != ")":
                raise self.error("missing )")
            self.take()
            return node
        if sign == ".":
            return _either(*(("symbol", symbol) for symbol in self.alphabet))
        if sign in _UNSUPPORTED:
            self.place -= 1
            raise self.error(f"{sign} is not supported; \\{sign} is the symbol")
        if sign == "\\":
            if not self.peek():
                raise self.error("nothing after the backslash")
            if self.peek().isalnum():
                raise self.error(f"the class \\{self.peek()} is not supported")
            sign = self.take()
        if sign not in self.alphabet:
            self.place -= 1
            raise self.error(f"{sign!r} is not in the alphabet {' '.join(self.alphabet)}")
        return ("symbol", sign)
