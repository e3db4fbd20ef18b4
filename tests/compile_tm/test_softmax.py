"""Tests of converted transformers against hardmax transformers and dense matrices."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.dfa import DfaVocabulary, dfa_program
from compile_tm.constructions.sequences import cot_ids, min_bits, scot_segments
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion import bounds
from compile_tm.conversion.convert import convert
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import (
    Conversion,
    Denoising,
    RoundingPoints,
    layers_with_ties,
)
from compile_tm.conversion.weights import NEURONS, convert_denoise
from compile_tm.formats.floats import BF16, FP8_E4M3, FP8_E5M2, FP16, FloatFormat
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.interpreter import Run
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.program import Program, Sizes
from compile_tm.runtime.modules import Denoise
from compile_tm.runtime.transformer import Part, Snapshot, TorchTransformer
from tests.compile_tm.machine_cases import example_runs, random_dfa, random_runs
from tests.compile_tm.naive_softmax import naive_streams

M1E3 = FloatFormat(mantissa_bits=1, exponent_bits=3)
M4E5 = FloatFormat(mantissa_bits=4, exponent_bits=5)
BF16_BOTH = RoundingPoints(activations=BF16, attention=BF16)
BF16_EXACT = RoundingPoints(activations=BF16)
MODES: tuple[Mode, ...] = ("cot", "scot")
Case = tuple[Program, list[tuple[npt.NDArray[np.int32], int]]]


def compiled_case(run: Run, mode: Mode, *, extra_bits: int = 0) -> tuple[CompiledMachine, Case]:
    """A machine, and the sequences that it is to generate, with the lengths of their prompts."""
    bits = min_bits(run, mode=mode) + extra_bits
    compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True)
    if mode == "scot":
        return compiled, (
            compiled.program,
            list(scot_segments(compiled.vocabulary, run, bits=bits)),
        )
    ids = cot_ids(compiled.vocabulary, run, bits=bits)
    return compiled, (compiled.program, [(ids, len(run.word) + 2)])


def dfa_case(dfa: Dfa, *, bits: int, seed: int) -> Case:
    """A random word of the greatest length, with what the automaton says of each prefix."""
    program, rng = dfa_program(dfa, bits=bits), np.random.default_rng(seed)
    word = [dfa.alphabet[n] for n in rng.integers(len(dfa.alphabet), size=(1 << bits) - 1)]
    ids = DfaVocabulary(dfa=dfa).input_ids(word)
    return program, [(ids, 1)]


def all_conversions(case: Case) -> list[tuple[Conversion, RoundingPoints]]:
    """Every conversion, for bf16."""
    program, sequences = case
    blueprint = Blueprint(program=program)
    found = [(convert(blueprint, "exact"), RoundingPoints())]
    exact = convert(blueprint, "exact", points=BF16_EXACT)
    found.append((exact, BF16_EXACT))
    for where in Denoising:
        conversion = convert(
            blueprint,
            "denoise",
            points=BF16_BOTH,
            where=where,
            tie_layers=layers_with_ties(program, [ids for ids, _ in sequences]),
        )
        found.append((conversion, BF16_BOTH))
    return found


def test_all_conversions_generate_the_tokens_of_machines() -> None:
    """All examples and some random machines, with CoT and SCoT."""
    for run in [*example_runs(), *random_runs(3, seed=4)]:
        for mode in MODES:
            _, case = compiled_case(run, mode)
            program, sequences = case
            for conversion, points in all_conversions(case):
                model = TorchTransformer(program, conversion, points=points)
                for ids, prompt_length in sequences:
                    said = model.predict(ids[:-1])[prompt_length - 1 :]
                    assert (said == ids[prompt_length:]).all(), (run.machine.name, conversion)


def test_all_conversions_give_the_answers_of_automata() -> None:
    rng = np.random.default_rng(0)
    for bits in range(1, 7):
        case = program, sequences = dfa_case(random_dfa(rng), bits=bits, seed=bits)
        hardmax = TorchTransformer(program)
        for conversion, points in all_conversions(case):
            model = TorchTransformer(program, conversion, points=points)
            ids = sequences[0][0]
            assert (model.predict(ids) == hardmax.predict(ids)).all(), conversion


@pytest.mark.parametrize("mode", MODES)
def test_smallest_formats_of_the_theorem(mode: Mode) -> None:
    """Activations of one mantissa and three exponent bits, attention weights of four and five."""
    points = RoundingPoints(activations=M1E3, attention=M4E5)
    for run in random_runs(4, seed=7):
        program, sequences = compiled_case(run, mode)[1]
        conversion = convert(Blueprint(program=program), "denoise", points=points)
        assert conversion.c in (6, 8, 12)
        model = TorchTransformer(program, conversion, points=points)
        for ids, prompt_length in sequences:
            assert (model.predict(ids[:-1]) == ids[1:])[prompt_length - 1 :].all()


def small_case(mode: Mode) -> tuple[CompiledMachine, Case]:
    run = next(random_runs(1, seed=3, max_tapes=1, max_states=3))
    return compiled_case(run, mode)


@pytest.mark.parametrize(
    ("where", "points"),
    [
        (None, RoundingPoints()),
        (None, RoundingPoints(activations=FP8_E4M3)),
        (Denoising.EVERY, RoundingPoints(activations=M1E3, attention=FP8_E5M2)),
        (Denoising.HEADS, RoundingPoints(activations=FP16, attention=FP8_E4M3)),
    ],
    ids=str,
)
def test_the_runtime_equals_the_dense_matrices(
    where: Denoising | None, points: RoundingPoints
) -> None:
    """Also with a c so small that the streams are full of noise."""
    _, (program, sequences) = small_case("scot")
    for c in (1.0, 4.0):
        conversion = Conversion(c=c)
        if where is not None:
            chosen = convert(Blueprint(program=program), "denoise", points=points, where=where)
            conversion = Conversion(c=c, denoised=chosen.denoised)
        weights = convert_denoise(dense_weights(program), c=c, layers=conversion.denoised)
        assert conversion.num_layers(program.sizes) == weights.sizes.L
        model = TorchTransformer(program, conversion, points=points, dtype=torch.float64)
        ids, seen = sequences[0][0], list[Snapshot]()
        model(torch.from_numpy(ids[None].astype(np.int64)), seen=seen)
        expected = naive_streams(weights, ids, position=program.position.coordinates, points=points)
        for snapshot, stream in zip(seen, _of_parts(seen, expected, conversion), strict=True):
            got = snapshot.stream[0].numpy()
            assert np.abs(got - stream).max() < 1e-9, (c, snapshot.layer, snapshot.part)


def _of_parts(
    seen: list[Snapshot], streams: list[npt.NDArray[np.float64]], conversion: Conversion
) -> list[npt.NDArray[np.float64]]:
    """Streams of the naive transformer after the same parts."""
    found = []
    for layer, part, _ in seen:
        before = 2 * (layer - 1) + 2 * sum(done < layer for done in conversion.denoised)
        extra = 2 * (layer in conversion.denoised)
        place = {Part.EMBEDDING: -before, Part.HEADS: 1, Part.DENOISING: 2, Part.MLP: 2 + extra}
        found.append(streams[before + place[part]])
    return found


def test_matrices_have_the_sizes_and_values_of_the_theorems() -> None:
    """Theorem "hardtosoftdenoising": depth 2L, d_ff max{d_ff, 6d}, weights 0, +-1, +-2, +-c."""
    _, (program, _) = small_case("cot")
    dense = dense_weights(program)
    exact = convert_denoise(dense, c=20.0, layers=())
    assert exact.sizes == dense.sizes
    assert (exact.W_Q == 20 * dense.W_Q).all()
    assert (exact.W_1 == dense.W_1).all()
    weights = convert_denoise(dense, c=9.0)
    size = dense.sizes
    assert (weights.sizes.L, weights.sizes.d_ff) == (2 * size.L, max(size.d_ff, 6 * size.d))
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
        matrix = getattr(weights, name)
        assert matrix.dtype == np.float32
        assert np.isin(matrix, (0, 1, -1, 2, -2, 9, -9)).all()
    assert not weights.W_O[1::2].any()
    assert (weights.W_O[::2] == dense.W_O).all()
    assert set(np.abs(weights.b[::2]).ravel()) == {0, 0.25, 0.75}
    some = convert_denoise(dense, c=9.0, layers={2, 3})
    assert some.sizes.L == size.L + 2
    assert (some.W_1[[0, 2, 4], : size.d_ff] == dense.W_1[:3]).all()
    with pytest.raises(ValueError, match="layers: got"):
        convert_denoise(dense, c=9.0, layers={size.L + 1})


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(3, 8), st.sampled_from([-1, 0, 1]), st.floats(-0.25, 0.25))
def test_denoising(b_m: int, b_e: int, ternary: int, noise: float) -> None:
    """Lemma "denoising_mlp", in reals and with all roundings."""
    act = FloatFormat(mantissa_bits=b_m, exponent_bits=b_e)
    x = act.round_number(ternary + noise)
    if abs(x - ternary) <= 1 / 4:
        module = Denoise(act, torch.float64)
        assert module(torch.tensor([x], dtype=torch.float64)).item() == ternary
    weight, bias, output = NEURONS.T.astype(np.float64)
    y = ternary + noise
    assert y + np.maximum(0, weight * y + bias) @ output == pytest.approx(ternary, abs=1e-15)


def test_denoising_with_two_mantissa_and_two_exponent_bits() -> None:
    """The lemma's footnote."""
    act = FloatFormat(mantissa_bits=2, exponent_bits=2)
    x = torch.tensor([-1.25, -1, -0.75, -0.25, 0, 0.25, 0.75, 1, 1.25])
    assert Denoise(act, torch.float32)(x).tolist() == [-1, -1, -1, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_generation_is_what_one_pass_predicts(mode: Mode) -> None:
    """With the cache, in batches of prompts of different lengths."""
    compiled, case = small_case(mode)
    program, sequences = case
    for conversion, points in all_conversions(case):
        model = TorchTransformer(program, conversion, points=points)
        prompts = [ids[:length] for ids, length in sequences]
        longer = sequences[0][0][: sequences[0][1] + 2]
        generated = model.generate([*prompts, longer], stop=compiled.stop_ids)
        for ids, (expected, _) in zip(generated, [*sequences, sequences[0]], strict=True):
            assert ids.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="prompts: allowed are 1 to"):
        model.generate([np.zeros(0, dtype=np.int32)], stop=())
    with pytest.raises(ValueError, match="positions: got"):
        model.predict(np.zeros(model.max_positions + 1, dtype=np.int32))


def test_blocks_of_queries_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (program, sequences) = small_case("cot")
    ids = torch.from_numpy(sequences[0][0][None].astype(np.int64))
    model = TorchTransformer(program, Conversion(c=3.0), points=BF16_BOTH)
    whole = model(ids)
    monkeypatch.setattr("compile_tm.runtime.modules._MAX_SCORES", 1)
    assert torch.allclose(model(ids), whole)


def test_bounds_are_the_papers() -> None:
    """GPT-3: c of about 13.3 at d_k = 128 and N = 2^16, and the first theorem's formula."""
    gpt3 = Sizes(L=48, H=96, d_k=128, d_v=128, d_ff=4 * 12288, d=12288, vocab_size=1)
    assert bounds.denoise_bound(gpt3, length=1 << 16) == pytest.approx(13.3, abs=0.05)
    size = Sizes(L=2, H=1, d_k=4, d_v=1, d_ff=3, d=5, vocab_size=1)
    inner = 16 / 6 * max(20, 80) * 8 * (48 * 5 * 3 + 12) ** 2
    c = bounds.exact_bound(size, length=8)
    assert c == pytest.approx(math.sqrt(2 * 2 * math.log(inner)))
    # At the theorem's c, the proof's last error is its greatest allowed one, or a little less.
    *_, (_, last) = bounds.exact_errors(size, c=c, length=8)
    assert -1 < last - math.log(bounds.allowed_error(size)) <= 0
    error = bounds.denoise_error(size, c=bounds.denoise_bound(size, length=8), length=8)
    assert error == pytest.approx(1 / 8)
    both = bounds.denoise_error(
        size, c=bounds.denoise_bound(size, length=8), length=8, mantissa_bits=4
    )
    assert both == pytest.approx(1 / 4)
    assert bounds.ties_bound(size, length=8) > c


def test_formats_without_c_or_quarters_are_refused() -> None:
    _, (program, _) = small_case("cot")
    narrow = RoundingPoints(activations=FloatFormat(mantissa_bits=3, exponent_bits=3))
    with pytest.raises(
        ValueError,
        match=r"^act: got m3e3, whose largest value is 15; .* at least \d",
    ):
        convert(Blueprint(program=program), "exact", points=narrow)
    with pytest.raises(ValueError, match=r"activations: got bf16, which does not have 8\.03"):
        TorchTransformer(program, Conversion(c=8.03), points=BF16_BOTH)
    one_and_two = RoundingPoints(activations=FloatFormat(mantissa_bits=1, exponent_bits=2))
    with pytest.raises(ValueError, match=r"does not have 0\.25, 0\.75"):
        TorchTransformer(program, Conversion(c=2, denoised=frozenset({1})), points=one_and_two)
    with pytest.raises(ValueError, match="tie_layers: missing"):
        convert(Blueprint(program=program), "denoise", where=Denoising.TIES)


def test_only_the_symbol_search_ties() -> None:
    """What Lemma "assumptions" says of the heads: only those that ask whether a token exists."""
    for mode in ("cot", "scot"):
        for run in random_runs(3, seed=5):
            program, sequences = compiled_case(run, mode)[1]
            for number in layers_with_ties(program, [ids for ids, _ in sequences]):
                assert "symbol search" in {head.name for head in program.layers[number - 1].heads}
    program, sequences = dfa_case(random_dfa(np.random.default_rng(1)), bits=4, seed=0)
    assert not layers_with_ties(program, [ids for ids, _ in sequences])


def test_weights_of_automata_convert_too() -> None:
    dense: DenseWeights = dense_weights(dfa_program(random_dfa(np.random.default_rng(2)), bits=2))
    assert convert_denoise(dense, c=8.0).sizes.L == 2 * dense.sizes.L
