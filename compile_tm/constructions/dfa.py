"""Programs of automata: the explicit theorem in "Proof of Theorem reglang".

Position i holds a function f on states, initially the transition function of its symbol. In round k
it reads the function g of position i - 2^k (or 0) and replaces f by f after g, so that after round
k it holds the effect of the last 2^(k+1) symbols. Functions are stored as the codes of their
values. After r rounds, the value at the initial state determines the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.sizes import dfa_sizes
from compile_tm.constructions.tokens import Answer, Symbol, Token
from compile_tm.machines.dfa import Dfa
from compile_tm.program.arithmetic import subtract_power
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import compose, table, write, zero
from compile_tm.program.program import Program
from compile_tm.program.registers import Flag, Register, binary, num_bits_for
from compile_tm.program.wires import allocate, flag, register


@dataclass(frozen=True, kw_only=True)
class DfaVocabulary:
    """Vocabulary of an automaton: Sigma, then <bos>, <true>, <false>."""

    dfa: Dfa
    """The automaton."""

    @property
    def size(self) -> int:
        """|V|."""
        return len(self.dfa.alphabet) + len(Answer)

    def answer_id(self, answer: Answer) -> int:
        """Return the id of <bos>, <true> or <false>."""
        return len(self.dfa.alphabet) + tuple(Answer).index(answer)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {symbol: place for place, symbol in enumerate(self.dfa.alphabet)}

    def input_ids(self, word: str | Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the ids of <bos> and the word.

        Raises:
            ValueError: a symbol outside the alphabet.
        """
        symbols = [self._places[symbol] for symbol in self.dfa.word(word)]
        return np.array([self.answer_id(Answer.BOS), *symbols], dtype=np.int32)

    def token(self, token_id: int) -> Token:
        """Return the token of an id.

        Raises:
            ValueError: no such id.
        """
        if not 0 <= token_id < self.size:
            raise ValueError(f"token id: got {token_id}, allowed are 0 to {self.size - 1}")
        num_symbols = len(self.dfa.alphabet)
        if token_id < num_symbols:
            return Symbol(self.dfa.alphabet[token_id])
        return tuple(Answer)[token_id - num_symbols]

    def tokens(self, ids: npt.ArrayLike) -> tuple[Token, ...]:
        """Return the tokens of ids."""
        return tuple(self.token(int(token_id)) for token_id in np.asarray(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class DfaWires:
    """Registers and flags of the construction; a function is stored as the codes of its values."""

    function: Annotated[
        Register,
        register(
            "function",
            "Transition function of the last 1, 2, 4, .. symbols, in the end of the word; its "
            "value at the initial state comes first, and the answer takes that value's first bit.",
        ),
    ]
    earlier_function: Annotated[
        Register, register("function", "Function that the earlier position holds, to compose with.")
    ]
    symbol: Annotated[Register, register("symbol", "Index of the symbol in the alphabet.")]
    bos: Annotated[Flag, flag("The token is <bos>.")]
    earlier_position: Annotated[
        Register,
        register("r", "Position 1, 2, 4, .. tokens back in successive layers.", kind="position"),
    ]


def dfa_min_bits(num_symbols: int) -> int:
    """Return the smallest r >= 1 with `num_symbols` < 2^r."""
    return max(1, num_symbols.bit_length())


def dfa_program(dfa: Dfa, *, bits: int) -> Program:
    """Return the program for words of fewer than 2^r symbols, r = `bits`.

    Raises:
        ValueError: r is less than 1.
    """
    if bits < 1:
        raise ValueError(f"bits: got {bits}, must be at least 1")
    vocabulary = DfaVocabulary(dfa=dfa)
    order = sorted(range(len(dfa.states)), key=lambda n: dfa.states[n] != dfa.initial_state)
    place_of = np.argsort(order)
    num_states, width = len(order), num_bits_for(len(order))
    codes = binary(np.arange(num_states), num_bits=width)
    sizes = dfa_sizes(dfa, bits=bits)

    build = ProgramBuilder(vocab_size=vocabulary.size, num_layers=sizes.L, position_bits=bits)
    w = allocate(
        DfaWires,
        build,
        values={
            "r": bits,
            "function": num_states * width,
            "symbol": num_bits_for(len(dfa.alphabet)),
        },
    )
    symbol_codes = binary(np.arange(len(dfa.alphabet)), num_bits=len(w.symbol))
    build.embed(np.arange(len(dfa.alphabet)), (w.symbol, symbol_codes))
    build.embed(vocabulary.answer_id(Answer.BOS), (w.bos, 1))

    stage = build.stage("functions of symbols")
    effects = codes[place_of[dfa.table[order]]]  # (|Q|, |Sigma|, b)
    values = effects.transpose(1, 0, 2).reshape(len(dfa.alphabet), num_states * width)
    stage.mlp(
        1,
        table(w.symbol, symbol_codes, w.function, values, when=w.bos.off),
        write((w.function, codes.ravel()), when=w.bos.on),
    )
    function, earlier, target = w.function, w.earlier_function, w.earlier_position
    for k in range(bits):
        stage = build.stage(f"round {k}")
        if k:
            stage.mlp(k + 1, zero(target))
        stage.mlp(k + 1, subtract_power(build.position, target, k))
        stage.head(k + 2, queries=target, keys=build.position, values=function, outputs=earlier)
        stage.mlp(k + 2, compose(function, earlier, codes), zero(function), zero(earlier))
    _answer(build, dfa, order, codes, vocabulary, function=function, spare=target)
    return build.finish(sizes)


def _answer(
    build: ProgramBuilder,
    dfa: Dfa,
    order: list[int],
    codes: npt.NDArray[np.int8],
    vocabulary: DfaVocabulary,
    *,
    function: Register,
    spare: Register,
) -> None:
    """Replace one coordinate by 1 if the final state is accepting, else by -1.

    It is the first one of the final state, or of `spare` if a single state has no coordinates.
    """
    final_state = function[: codes.shape[1]]
    slot = final_state[0] if len(final_state) else spare[0]
    accepts = [dfa.states[n] in dfa.accepting for n in order]
    answers = np.where(accepts, 1, -1)[:, None]
    stage = build.stage("answer")
    stage.mlp(len(build.heads), table(final_state, codes, slot, answers), zero(slot))
    build.unembed(vocabulary.answer_id(Answer.TRUE), (slot, 1))
    build.unembed(vocabulary.answer_id(Answer.FALSE), (slot, -1))
