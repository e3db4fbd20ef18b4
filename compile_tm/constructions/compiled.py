"""Compiled Turing machines and automata, and the token sequences of their definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.dfa import DfaVocabulary, dfa_program
from compile_tm.constructions.sequences import (
    Ids,
    check_enough_bits,
    checked_run,
    cot_ids,
    scot_segments,
)
from compile_tm.constructions.tokens import Answer, Delimiter, Symbol, Token, token_text
from compile_tm.constructions.turing import tm_program
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.files import machine_to_data
from compile_tm.machines.interpreter import Run
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.program import Program
from compile_tm.program.register_file import RegisterEntry, written_registers


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompiledMachine(ABC):
    """Base class of compiled Turing machines and automata; see `CompiledProgram`."""

    vocabulary: TmVocabulary | DfaVocabulary
    """Its tokens."""
    program: Program
    """Its transformer."""
    bits: int
    """r."""

    @property
    @abstractmethod
    def machine(self) -> TuringMachine | Dfa:
        """The machine that was compiled."""

    @property
    @abstractmethod
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence."""

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.machine.name

    @property
    def token_texts(self) -> tuple[str, ...]:
        """Text of each id."""
        return tuple(map(token_text, self.vocabulary.tokens(range(self.vocabulary.size))))

    @property
    def pad_id(self) -> int:
        """Padding is an end token, which the attention mask hides."""
        return self.stop_ids[0]

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Empty, since delimiters must not be skipped when decoding."""
        return ()

    def machine_data(self) -> dict[str, Any]:
        """Return the content of `machine.json`."""
        return machine_to_data(self.machine)

    def registers(self) -> list[RegisterEntry]:
        """Return the register entries, with layers of the program."""
        return written_registers(self.program)

    @property
    def evaluation_facts(self) -> None:
        """None, since only Sudoku solvers are evaluated."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMachine(_CompiledMachine):
    """A compiled Turing machine."""

    vocabulary: TmVocabulary

    @property
    def family(self) -> Literal["turing"]:
        """See `CompiledProgram`."""
        return "turing"

    @property
    def mode(self) -> Mode:
        """`cot` or `scot`."""
        return self.vocabulary.mode

    @property
    def machine(self) -> TuringMachine:
        """The machine that was compiled."""
        return self.vocabulary.machine

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """</outp>, and with SCoT </summ>."""
        last = [Delimiter.EOUTP] + [Delimiter.ESUMM] * (self.mode == "scot")
        return tuple(map(self.vocabulary.delimiter_id, last))

    @property
    def first_ids(self) -> tuple[int, ...]:
        """<inp>."""
        return (self.vocabulary.delimiter_id(Delimiter.INP),)

    @property
    def returning_ids(self) -> tuple[int, ...]:
        """With SCoT <summ>, which begins prompts and ends segments."""
        if self.mode == "cot":
            return ()
        return (self.vocabulary.delimiter_id(Delimiter.SUMM),)

    @property
    def options(self) -> dict[str, int | None]:
        """Whether run tokens that no rule leads to are left out."""
        return {"reachable_only": self.vocabulary.reachable_only}

    def expected_segments(self, word: str | Sequence[str]) -> list[tuple[Ids, int]]:
        """Return the sequences of the definitions with the lengths of their prompts; CoT has one.

        Raises:
            ValueError: the machine has no output on the word, or r is too small for it.
        """
        run = checked_run(self.machine, word)
        check_enough_bits(run, mode=self.mode, bits=self.bits)
        return self.segments_of(run)

    def segments_of(self, run: Run) -> list[tuple[Ids, int]]:
        """Return the sequences of a run, as `expected_segments`; r must be large enough."""
        if self.mode == "scot":
            return list(scot_segments(self.vocabulary, run, bits=self.bits))
        return [(cot_ids(self.vocabulary, run, bits=self.bits), len(run.word) + 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDfa(_CompiledMachine):
    """A compiled automaton; its answer is the only token that it generates."""

    vocabulary: DfaVocabulary

    @property
    def family(self) -> Literal["dfa"]:
        """See `CompiledProgram`."""
        return "dfa"

    @property
    def mode(self) -> Literal["dfa"]:
        """`dfa`."""
        return "dfa"

    @property
    def machine(self) -> Dfa:
        """The automaton that was compiled."""
        return self.vocabulary.dfa

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The answers."""
        return tuple(map(self.vocabulary.answer_id, (Answer.TRUE, Answer.FALSE)))

    @property
    def first_ids(self) -> tuple[int, ...]:
        """<bos>."""
        return (self.vocabulary.answer_id(Answer.BOS),)

    @property
    def returning_ids(self) -> tuple[int, ...]:
        """None."""
        return ()

    @property
    def options(self) -> dict[str, int | None]:
        """None."""
        return {}

    def expected_segments(self, word: str | Sequence[str]) -> list[tuple[Ids, int]]:
        """Return prompt and answer as one segment, with the length of its prompt.

        Raises:
            ValueError: a symbol outside the alphabet, or 2^r symbols or more.
        """
        prompt = self.vocabulary.input_ids(word)
        if len(prompt) > 1 << self.bits:
            raise ValueError(
                f"word: got {len(prompt) - 1} symbols, allowed are {(1 << self.bits) - 1}"
            )
        answer = Answer.TRUE if self.machine.accepts(word) else Answer.FALSE
        ids = np.append(prompt, self.vocabulary.answer_id(answer)).astype(np.int32)
        return [(ids, len(prompt))]


Compiled = CompiledMachine | CompiledDfa


def compile_machine(
    machine: TuringMachine, *, mode: Mode, bits: int, reachable_only: bool = False
) -> CompiledMachine:
    """Compile a Turing machine; see `turing.tm_program`.

    Raises:
        ValueError: r is odd or too small for the theorem.
    """
    vocabulary = TmVocabulary(machine=machine, mode=mode, reachable_only=reachable_only)
    program = tm_program(machine, mode=mode, bits=bits, reachable_only=reachable_only)
    return CompiledMachine(vocabulary=vocabulary, program=program, bits=bits)


def compile_dfa(dfa: Dfa, *, bits: int) -> CompiledDfa:
    """Compile an automaton; see `dfa.dfa_program`.

    Raises:
        ValueError: r is less than 1.
    """
    program = dfa_program(dfa, bits=bits)
    return CompiledDfa(vocabulary=DfaVocabulary(dfa=dfa), program=program, bits=bits)


def read_output(tokens: Iterable[Token]) -> tuple[str, ...] | None:
    """Return the output u of generated tokens (* <outp> u </outp>).

    Returns:
        The symbols; None unless <outp> occurs once and only symbols follow it.
    """
    *body, last = tokens
    if last is not Delimiter.EOUTP or body.count(Delimiter.OUTP) != 1:
        return None
    symbols = body[body.index(Delimiter.OUTP) + 1 :]
    names = tuple(token.name for token in symbols if isinstance(token, Symbol))
    return names if len(names) == len(symbols) else None


def read_summary(
    ids: npt.NDArray[np.integer], vocabulary: TmVocabulary
) -> npt.NDArray[np.int32] | None:
    """Return the summary at the end of generated ids (* <summ> s </summ>), the next prompt.

    Returns:
        The ids from <summ> on; None unless <summ> occurs once and s is not empty.
    """
    first, last = map(vocabulary.delimiter_id, (Delimiter.SUMM, Delimiter.ESUMM))
    starts = np.flatnonzero(ids == first)
    if ids[-1] != last or len(starts) != 1 or len(ids) - starts[0] < 3:
        return None
    return ids[starts[0] :].astype(np.int32)
