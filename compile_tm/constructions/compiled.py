"""A machine together with its program and its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.tokens import Delimiter, Symbol, Token
from compile_tm.constructions.turing import tm_program
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
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
