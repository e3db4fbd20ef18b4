"""Dimensions of the constructions by the theorems' formulas.

The theorems' numbers are used, with one exception, and unused neurons are zero. Differences between
the theorems and the constructions:

- SCoT, d_ff: the second term of the theorem is 18Kr + 2r + 1. The last neuron is that of
  F_writesumm in layer 4, which is a layer of head propagation (the first one) only for r = 4. The
  authors' code has 18Kr + 2r + 1 for r = 4 and 18Kr + 2r otherwise, as here.
- SCoT, layer 1: the listed operations use 18r + 2 + 4r + 6 = 22r + 8 neurons, not 22r + 11.
- SCoT, layer L_3 + 1: copying tape symbols and marking heads needs one condition (a tape cell is
  next) instead of one for each of two token types: 2K d_Gamma + 2K neurons, half as many.
- CoT: registers and flags sum to exactly d. Layer 1 has d_ff = 18r + 2 neurons. No layer has
  14Kr + 2r, as step j of the subtraction has 2(r - j) neurons. |Q||Gamma|^K + 1 counts rules of the
  halting state, which has none.
- CoT, heads: in layer L_2 + r - 1, the search has K heads, position bits have K, and F_lastrun has
  one. For r = 2 this is layer L_2 + 1, where F_extok has K more, one more than 3K. The head of
  F_lastrun has the queries and keys of the position bits, and is merged with that of tape 1.
- DFA: d_ff includes 4|Q|d_Q + 2|Q|^2 d_Q + 6r for layer k + 2. The last one, k = r - 1, computes no
  position, and layer 1 has none to zero. For |Q| = 1, states have no bits, and the answer replaces
  the first bit of the position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.program import Sizes
from compile_tm.program.registers import num_bits_for


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNumbers:
    """Numbers that the dimensions depend on."""

    num_tapes: int
    """K."""
    num_states: int
    """|Q|."""
    num_symbols: int
    """|Gamma|."""
    num_inputs: int
    """|Sigma|."""


def dfa_sizes(dfa: Dfa, *, bits: int) -> Sizes:
    """Return the dimensions of the theorem in "Proof of Theorem reglang", r = `bits`."""
    num_states, num_symbols, r = len(dfa.states), len(dfa.alphabet), bits
    d_q = num_bits_for(num_states)
    return Sizes(
        L=r + 2,
        H=1,
        d_k=r,
        d_v=num_states * d_q,
        d_ff=max(4 * num_states * d_q + 2 * num_states**2 * d_q, num_symbols + 1) + 6 * r,
        d=2 * r + 2 * num_states * d_q + num_bits_for(num_symbols) + 1,
        vocab_size=num_symbols + 3,
    )


def tm_sizes(
    machine: TuringMachine, *, mode: Mode, bits: int, reachable_only: bool = False
) -> Sizes:
    """Return the dimensions of the theorems on Turing machines, r = `bits`."""
    vocabulary = TmVocabulary(machine=machine, mode=mode, reachable_only=reachable_only)
    numbers = MachineNumbers(
        num_tapes=machine.num_tapes,
        num_states=len(machine.states),
        num_symbols=len(machine.tape_alphabet),
        num_inputs=len(machine.input_alphabet),
    )
    return replace(tm_dimensions(numbers, mode=mode, bits=bits), vocab_size=vocabulary.size)


def tm_dimensions(numbers: MachineNumbers, *, mode: Mode, bits: int) -> Sizes:
    """Return the dimensions for given numbers, with the whole vocabulary."""
    K, Q, G, r = numbers.num_tapes, numbers.num_states, numbers.num_symbols, bits
    d_q, d_g = num_bits_for(Q), num_bits_for(G)
    vocab_size = 6 + Q * G**K * 3**K + 2**K + numbers.num_inputs
    if mode == "cot":
        H = 3 * K
        d_ff = max(18 * r + 2, 14 * K * r + 2 * r, Q * G**K + 1)
        d = 6 * K * r + 6 * r + 3 * d_q + (3 * K + 1) * d_g + 10 * K + 21
    else:
        H = 3 * K + 2
        transition = Q * G**K + 4 * K * d_g + 4 * K + 1
        propagation = 18 * K * r + 2 * r + (r == 4)
        d_ff = max(22 * r + 11, propagation, transition)
        d = 7 * K * r + 9 * r + 5 * d_q + (4 * K + 1) * d_g + 13 * K + 31
        vocab_size += 2 + (2 * G) ** K + Q
    return Sizes(
        L=5 * r // 2 + 8,
        H=H,
        d_k=4 * r - 1,
        d_v=max(r, d_q, d_g),
        d_ff=d_ff,
        d=d,
        vocab_size=vocab_size,
    )
