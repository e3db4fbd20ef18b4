"""Options that name the columns of a table, shared by all commands that read puzzle lists."""

from __future__ import annotations

from dataclasses import dataclass

from solver.puzzles import ColumnNames


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """Columns of CSV, TSV and Parquet tables with unknown headers."""

    puzzle_column: str | None = None
    """Column of the puzzles in a table; by default one with a known name, such as `puzzle`."""
    answer_column: str | None = None
    """Column of the answers in a table; by default one with a known name, such as `answer`."""

    @property
    def names(self) -> ColumnNames:
        """The columns in the form that readers take."""
        return ColumnNames(puzzle=self.puzzle_column, answer=self.answer_column)

    @property
    def words(self) -> tuple[str, ...]:
        """The options as words of a command line."""
        words = []
        if self.puzzle_column is not None:
            words.append(f"--puzzle-column={self.puzzle_column}")
        if self.answer_column is not None:
            words.append(f"--answer-column={self.answer_column}")
        return tuple(words)
