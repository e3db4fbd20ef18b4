"""The decision stack, rebuilt from trace lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

Token = TypeVar("Token", int, str)


class DecisionStack(Generic[Token]):
    """Latest trace line of each cell on the active search path.

    Attributes:
        lines: Lines of tokens (ids or text), each with the coordinate of its cell first.
    """

    def __init__(self, lines: Iterable[list[Token]] = ()) -> None:
        """Initialize from the lines of a prompt, or empty."""
        self.lines: list[list[Token]] = list(lines)

    def push(self, line: list[Token]) -> list[list[Token]]:
        """Push a line, which replaces that of its cell and removes all above.

        Returns:
            The lines removed, in the order of the stack.
        """
        coordinates = [kept[0] for kept in self.lines]
        level = coordinates.index(line[0]) if line[0] in coordinates else len(coordinates)
        removed = self.lines[level:]
        self.lines[level:] = [line]
        return removed

    @property
    def num_open(self) -> int:
        """Number of lines with untried candidates."""
        return sum(len(line) > 2 for line in self.lines)
