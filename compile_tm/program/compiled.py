"""Protocols of compiled programs and their runtimes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Program
from compile_tm.program.register_file import RegisterEntry

Family = Literal["turing", "dfa", "sudoku"]


class Decoder(Protocol):
    """A runtime with greedy decoding."""

    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[npt.NDArray[np.int32]]:
        """Continue each prompt (n,) greedily to a stop token or the last position."""


class CompiledProgram(Protocol):
    """A program with its vocabulary: of a Turing machine, an automaton or a Sudoku solver.

    Position 0 of a sequence holds one of `first_ids` or `returning_ids`.
    """

    @property
    def family(self) -> Family:
        """Kind of the compiled object."""

    @property
    def name(self) -> str:
        """Name of the machine or board."""

    @property
    def mode(self) -> Literal["cot", "scot", "dfa"]:
        """`cot`, `scot` (with summaries), or `dfa` (a single answer)."""

    @property
    def bits(self) -> int:
        """Number of bits r of a position."""

    @property
    def program(self) -> Program:
        """The hardmax transformer."""

    @property
    def token_texts(self) -> tuple[str, ...]:
        """Text of each id."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence; the first one ends the last sequence."""

    @property
    def first_ids(self) -> tuple[int, ...]:
        """Ids that occur at position 0 only; the first one begins prompts."""

    @property
    def returning_ids(self) -> tuple[int, ...]:
        """Ids that occur at position 0 and later, but never at position 1."""

    @property
    def pad_id(self) -> int:
        """Id for padding."""

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids that the tokenizer registers as special tokens beside begin, end and padding."""

    @property
    def options(self) -> dict[str, int | None]:
        """Options of the compilation beside mode and bits, for `compiled.json`."""

    def machine_data(self) -> dict[str, Any]:
        """Return the content of `machine.json`."""

    def registers(self) -> list[RegisterEntry]:
        """Return what the registers hold, with layers of the program."""

    @property
    def evaluation_facts(self) -> dict[str, Any] | None:
        """Fields of `sudocot.json` beside format and digests; None for machines."""
