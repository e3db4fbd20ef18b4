"""Tests of rotary embeddings: definition, the lemma's stack, gaps, rounding, machines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.constructions.dfa import DfaVocabulary
from compile_tm.constructions.sequences import cot_ids, min_bits, scot_segments
from compile_tm.constructions.tokens import Answer
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.bounds import sufficient_c, sufficient_mantissa_bits
from compile_tm.conversion.rope.compose import rope_weights
from compile_tm.conversion.rope.rotation import rotate, turns
from compile_tm.conversion.rope.stack import (
    FIRST,
    OTHER,
    RopeWeights,
    position_stack,
    stack_periods,
)
from compile_tm.formats.floats import BF16, FP8_E4M3, FP32, FloatFormat
from compile_tm.machines.examples import example
from compile_tm.machines.interpreter import run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.turing import TuringMachine
from compile_tm.measure.rounding import (
    denoise,
    first_error,
    least_mantissa_bits,
)
from compile_tm.measure.separation import all_gaps, measured_gaps, stack_stream
from compile_tm.program.program import Program
from compile_tm.program.registers import binary
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.transformer import TorchTransformer
from tests.compile_tm.weight_checks import assert_selecting


def test_rotations_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    periods, x = (2, 3.5, 8), rng.normal(size=(5, 8))
    positions = np.array([0, 1, 2, 7, 1000])
    wanted = x.copy()
    for row, n in enumerate(positions):
        for pair, period in enumerate(periods):
            angle = n * 2 * math.pi / period
            first, second = x[row, 2 * pair : 2 * pair + 2]
            wanted[row, 2 * pair] = math.cos(angle) * first + math.sin(angle) * second
            wanted[row, 2 * pair + 1] = -math.sin(angle) * first + math.cos(angle) * second
    rotated = rotate(torch.from_numpy(x), torch.from_numpy(positions), periods)
    assert np.allclose(rotated.numpy(), wanted, rtol=0, atol=1e-11)
    with pytest.raises(ValueError, match="up to 4"):
        rotate(torch.from_numpy(x), torch.from_numpy(positions), (2,) * 5)
    with pytest.raises(ValueError, match="positive"):
        rotate(torch.from_numpy(x), torch.from_numpy(positions), (0,))


def test_quarter_turns_are_exact() -> None:
    cos, sin = turns(torch.arange(9), (4, 1 << 40), dtype=torch.float64)
    assert cos[:, 0].tolist() == [1, 0, -1, 0, 1, 0, -1, 0, 1]
    assert sin[:, 0].tolist() == [0, 1, 0, -1, 0, 1, 0, -1, 0]
    assert sin[1, 1].item() == pytest.approx(2 * math.pi / (1 << 40), rel=1e-15)


def stack_program(stack: RopeWeights) -> Program:
    """A program without layers behind the stack."""
    return Program(
        sizes=stack.weights.sizes,
        wires=(*stack.wires.own, stack.result),
        position=stack.result,
        layers=(),
        embedding=stack.weights.embedding,
        unembedding=stack.weights.unembedding,
        exclusive=(),
    )


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7])
def test_stack_writes_the_position_and_keeps_the_lemma(bits: int) -> None:
    stack = position_stack(bits)
    size = stack.weights.sizes
    assert (size.d, size.d_k, size.d_v) == (2 * bits + 3, 2 * (bits + 2) + 2, 1)
    assert (size.H, size.L, size.d_ff) == (2, bits + 1, 2)
    assert stack.periods == tuple(2**s for s in range(1, bits + 3)) == stack_periods(bits)
    assert_selecting(stack.weights, "W_Q", "W_V", "W_O")  # Rows of W_K may hold 1 - x[first].
    model = TorchTransformer(stack_program(stack), rope=stack)
    for length in {1, 2, (1 << bits) - 1, 1 << bits}:
        streams = model.streams(np.array([FIRST] + [OTHER] * (length - 1)))
        for number, stream in enumerate(streams):
            layer, is_after_heads = (number + 1) // 2, number % 2 == 1
            wanted = stack_stream(bits, layer, num_positions=length, is_after_heads=is_after_heads)
            assert np.array_equal(stream, wanted)
        result = streams[-1][:, stack.result.index]
        assert np.array_equal(result, binary(np.arange(length), num_bits=bits))
    with pytest.raises(ValueError, match=f"positions: got {(1 << bits) + 1}"):
        model.predict(np.full((1 << bits) + 1, OTHER))


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_gaps_are_those_of_the_matrices(bits: int) -> None:
    calculated = sorted(all_gaps(bits), key=lambda one: (one.head, one.layer))
    for one, other in zip(calculated, measured_gaps(bits), strict=True):
        assert (one.layer, one.head) == (other.layer, other.head)
        assert np.allclose(one.gaps, other.gaps, rtol=0, atol=1e-9)


def test_gaps_are_those_of_the_lemma_up_to_2_to_the_16() -> None:
    heads = all_gaps(16)
    assert len(heads) == 16 + 15
    for head in heads:
        assert len(head.gaps) == 1 << 16
        assert head.least >= (0.5 if head.head else 1.0)
    closest = min(heads, key=lambda head: head.least)
    assert closest.least == pytest.approx(0.6068878, abs=1e-6)
    assert (closest.layer, closest.head, closest.position) == (13, 1, 2047)
    # The same head and others, from the matrices, at that position and some more.
    positions = np.array([3, closest.position, 2048, 3000])
    for one in measured_gaps(16, positions=positions):
        other = next(h for h in heads if (h.layer, h.head) == (one.layer, one.head))
        assert np.allclose(one.gaps, other.gaps[positions], rtol=0, atol=1e-9)


@pytest.mark.parametrize("bits", [2, 5, 7])
def test_rounded_stack_works_at_its_bounds(bits: int) -> None:
    enough = FloatFormat(mantissa_bits=sufficient_mantissa_bits(bits), exponent_bits=8)
    for activations in (enough, BF16, FP32):
        c = activations.at_least(sufficient_c(bits))
        assert first_error(bits, c=c, activations=activations, attention=BF16) is None
    assert least_mantissa_bits(bits, attention=BF16) <= sufficient_mantissa_bits(bits)


def test_mantissa_bits_grow_as_in_the_proof_sketch() -> None:
    bits = [1, 2, 4, 8, 16, 32, 64, 1024]
    enough = [sufficient_mantissa_bits(r) for r in bits]
    assert all(
        r * 2.0**-m <= 1 / 8 < r * 2.0 ** -(m - 2) for r, m in zip(bits, enough, strict=True)
    )
    assert enough == [math.log2(r) + 4 for r in bits]


def test_what_is_too_small_for_the_rounded_stack_is_found() -> None:
    error = first_error(6, c=1.0, activations=BF16, attention=BF16)
    assert error is not None
    assert str(error).startswith("layer 1, head 0, position 1: ")
    # Attention weights may underflow here where many positions tie, as these have the value 0.
    coarse = FloatFormat(mantissa_bits=2, exponent_bits=2)
    assert first_error(6, c=16.0, activations=FP32, attention=coarse) is None
    with pytest.raises(ValueError, match=r"c: got 13\.3"):
        first_error(4, c=13.3, activations=FP8_E4M3, attention=BF16)


def test_rounding_eats_the_gap() -> None:
    narrow = FloatFormat(mantissa_bits=1, exponent_bits=8)
    c = narrow.at_least(sufficient_c(8))
    exact, rounded = (
        min(head.least for head in measured_gaps(8, c=c, activations=activations))
        for activations in (FP32, narrow)
    )
    assert exact == pytest.approx(min(head.least for head in all_gaps(8)), abs=1e-5)
    assert rounded < exact - 0.1


@pytest.mark.parametrize("activations", [BF16, FloatFormat(mantissa_bits=1, exponent_bits=3)])
def test_denoising(activations: FloatFormat) -> None:
    x = torch.linspace(-1.25, 1.25, 201, dtype=torch.float64)
    x = activations.round(x)
    near = x[(x - x.round()).abs() <= 0.25]
    assert torch.equal(denoise(near, activations), near.round())


def test_automaton_without_positional_embedding() -> None:
    dfa, bits = example("multiples-of-3"), 4
    assert not isinstance(dfa, TuringMachine)
    vocabulary = DfaVocabulary(dfa=dfa)
    compiled = compile_dfa(dfa, bits=bits)
    model = TorchTransformer(compiled.program, rope=rope_weights(compiled))
    num_layers = model.sizes.L
    assert num_layers == bits + 2 + bits + 1
    answers = [vocabulary.answer_id(answer) for answer in (Answer.FALSE, Answer.TRUE)]
    for number in range(1, 1 << 6):
        word = f"{number:b}"
        said = model.predict(vocabulary.input_ids(word))
        assert [token in answers for token in said] == [True] * len(said)
        assert said[-1] == answers[number % 3 == 0]


def random_runs() -> list[tuple[int, Mode]]:
    return [(seed, mode) for seed in range(2) for mode in ("cot", "scot")]


@pytest.mark.parametrize(("seed", "mode"), random_runs())
def test_random_machines_without_positional_embedding(seed: int, mode: Mode) -> None:
    rng = np.random.default_rng(seed)
    config = RandomMachineConfig(max_tapes=1, max_states=3, max_word=4)
    run = None
    while run is None or run.output is None or not 1 < run.num_steps < 30:
        machine = random_machine(rng, config)
        run = run_machine(machine, random_word(rng, machine, max_length=4), max_steps=100)
    bits = min_bits(run, mode=mode)
    compiled = compile_machine(run.machine, mode=mode, bits=bits)
    rope = rope_weights(compiled)
    size, own = compiled.program.sizes, rope.weights.sizes
    assert rope.num_stack_layers == bits + 1 + (mode == "scot")
    assert rope.num_stack_layers + size.L == own.L
    assert own.d_k == 2 * (bits + 2) + size.d_k
    assert own.d == size.d + bits + 3
    model = TorchTransformer(compiled.program, rope=rope)
    generated = generate_words(model, compiled, [run.word])[0]
    wanted = [cot_ids(compiled.vocabulary, run, bits=bits)]
    if mode == "scot":
        wanted = [ids for ids, _ in scot_segments(compiled.vocabulary, run, bits=bits)]
    assert len(generated.segments) == len(wanted)
    assert all(np.array_equal(a, b) for a, b in zip(generated.segments, wanted, strict=True))
    assert generated.output == run.output
