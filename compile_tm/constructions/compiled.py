"""A machine together with its program and its vocabulary, and the sequences that it must write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

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
from compile_tm.constructions.tokens import Answer, Delimiter, Symbol, Token
from compile_tm.constructions.turing import tm_program
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMachine:
    """What a runtime needs to run a Turing machine."""

    vocabulary: TmVocabulary
    """Its tokens."""
    program: Program
    """Its transformer."""
    bits: int
    """r."""

    @property
    def mode(self) -> Mode:
        """`cot` or `scot`."""
        return self.vocabulary.mode

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a sequence: </outp>, and with SCoT </summ>."""
        last = [Delimiter.EOUTP] + [Delimiter.ESUMM] * (self.mode == "scot")
        return tuple(map(self.vocabulary.delimiter_id, last))

    @property
    def machine(self) -> TuringMachine:
        """What was compiled."""
        return self.vocabulary.machine

    def expected_segments(self, word: str | Sequence[str]) -> list[tuple[Ids, int]]:
        """The sequences of the definitions, each with the length of its prompt; CoT has one.

        Raises:
            ValueError: the machine has no output on the word, or r is too small for it.
        """
        run = checked_run(self.machine, word)
        check_enough_bits(run, mode=self.mode, bits=self.bits)
        if self.mode == "scot":
            return list(scot_segments(self.vocabulary, run, bits=self.bits))
        return [(cot_ids(self.vocabulary, run, bits=self.bits), len(run.word) + 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDfa:
    """What a runtime needs to run an automaton; its answer is the one token that it writes."""

    vocabulary: DfaVocabulary
    """Its tokens."""
    program: Program
    """Its transformer."""
    bits: int
    """r."""

    @property
    def mode(self) -> Literal["dfa"]:
        """In place of `cot` and `scot`."""
        return "dfa"

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The answers."""
        return tuple(map(self.vocabulary.answer_id, (Answer.TRUE, Answer.FALSE)))

    @property
    def machine(self) -> Dfa:
        """What was compiled."""
        return self.vocabulary.dfa

    def expected_segments(self, word: str | Sequence[str]) -> list[tuple[Ids, int]]:
        """Prompt and answer, as one segment with the length of its prompt.

        Raises:
            ValueError: an alien symbol, or the word has 2^r symbols or more.
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
    """Compile a machine; see `turing.tm_program`.

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
    """The output u of generated tokens (* <outp> u </outp>), <outp> once and u symbols.

    Returns:
        The symbols, or None where the tokens do not have this form.
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
    """The summary at the end of generated ids (* <summ> s </summ>), <summ> once and s not empty.

    Returns:
        The next prompt, or None where the ids do not have this form.
    """
    first, last = map(vocabulary.delimiter_id, (Delimiter.SUMM, Delimiter.ESUMM))
    places = np.flatnonzero(ids == first)
    if ids[-1] != last or len(places) != 1 or len(ids) - places[0] < 3:
        return None
    return ids[places[0] :].astype(np.int32)
