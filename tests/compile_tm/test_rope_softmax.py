"""Tests of rotary machines with softmax: definition, bounds, and failures below the bounds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.conversion.convert import Kind, c_bound, convert, unmet
from compile_tm.conversion.rope.blueprint import STACK_NAME, Blueprint, make_blueprint
from compile_tm.conversion.rope.bounds import (
    least_stack_gap,
    sufficient_c,
    sufficient_mantissa_bits,
)
from compile_tm.conversion.settings import Conversion, Denoising, RoundingPoints
from compile_tm.conversion.weights import convert_denoise
from compile_tm.formats.floats import BF16, FP8_E5M2, FloatFormat
from compile_tm.machines.examples import binary_increment
from compile_tm.machines.regex import regex_dfa
from compile_tm.measure.cases import dfa_case, find_failure, machine_case, without_embedding
from compile_tm.measure.rounding import first_error
from compile_tm.measure.tightness import conversion_of, measure_errors, measure_least_c, points_of
from compile_tm.runtime.modules import KvCache
from compile_tm.runtime.transformer import Part, Snapshot, TorchTransformer
from tests.compile_tm.naive_softmax import naive_streams


def mantissa(bits: int) -> FloatFormat:
    return FloatFormat(mantissa_bits=bits, exponent_bits=8)


def small_blueprint() -> tuple[Blueprint, np.ndarray]:
    """SCoT, so that a layer before the stack unmarks later summaries; and its first segment."""
    compiled = compile_machine(binary_increment(), mode="scot", bits=4, reachable_only=True)
    return make_blueprint(compiled, "rope"), compiled.vocabulary.input_ids("1101")


@pytest.mark.parametrize("c", [1.0, 4.0, 16.0])
@pytest.mark.parametrize(
    "points",
    [
        RoundingPoints(),
        RoundingPoints(activations=BF16, attention=BF16),
        RoundingPoints(activations=FP8_E5M2, attention=BF16),
    ],
    ids=str,
)
def test_the_runtime_follows_the_definition(points: RoundingPoints, c: float) -> None:
    """Also with a c so small that streams are full of noise."""
    blueprint, ids = small_blueprint()
    rope, denoised = blueprint.rope, frozenset(range(1, blueprint.sizes.L + 1, 2))
    assert rope is not None
    conversion = Conversion(c=c, denoised=denoised)
    seen: list[Snapshot] = []
    model = TorchTransformer(
        blueprint.program, conversion, rope=rope, points=points, dtype=torch.float64
    )
    scores = model(torch.from_numpy(ids[None].astype(np.int64)), seen=seen)
    weights = convert_denoise(rope.weights, c=c, layers=denoised)
    expected = naive_streams(weights, ids, position=(), points=points, periods=rope.periods)
    for layer, part, stream in seen:
        before = 2 * (layer - 1) + 2 * sum(done < layer for done in denoised)
        offsets = {Part.HEADS: 1, Part.DENOISING: 2, Part.MLP: 4 if layer in denoised else 2}
        wanted = expected[before + offsets[part] if layer else 0]
        assert np.abs(stream[0].numpy() - wanted).max() < 1e-9, (layer, part)
    assert np.allclose(scores[0].numpy(), expected[-1] @ weights.unembedding.T, atol=1e-9)


def test_caches_make_no_difference() -> None:
    blueprint, ids = small_blueprint()
    points = RoundingPoints(activations=BF16, attention=BF16)
    conversion = convert(blueprint, "denoise", points=points)
    model = TorchTransformer(blueprint.program, conversion, rope=blueprint.rope, points=points)
    tokens, cache = torch.from_numpy(ids[None].astype(np.int64)), KvCache()
    parts = [model(tokens[:, start:stop], cache) for start, stop in ((0, 3), (3, 4), (4, 6))]
    assert torch.equal(torch.cat(parts, dim=1), model(tokens))
    with pytest.raises(ValueError, match="positions: got 17, allowed are 16"):
        model(torch.zeros(1, 17, dtype=torch.int64))


def test_bounds_of_the_whole() -> None:
    """One d_k and one c for stack and program: the greater of both bounds."""
    blueprint, _ = small_blueprint()
    sizes = blueprint.sizes
    assert c_bound(blueprint, "denoise") == 2 * denoise_bound(sizes, length=16)
    assert c_bound(blueprint, "denoise") > sufficient_c(4)
    assert c_bound(blueprint, "exact") == 3 * exact_bound(sizes, length=16)
    kinds: tuple[Kind, ...] = ("exact", "denoise")
    for kind in kinds:
        embedded = Blueprint(program=blueprint.program)
        assert c_bound(embedded, kind) < c_bound(blueprint, kind)
    heads = convert(blueprint, "denoise", where=Denoising.HEADS).denoised
    assert heads == blueprint.layers_with_heads()
    assert set(range(1, blueprint.num_before + 1)) <= heads < set(range(1, sizes.L + 1))
    with pytest.raises(ValueError, match="got ties, allowed with rotary embeddings"):
        convert(blueprint, "denoise", where=Denoising.TIES)
    enough = sufficient_mantissa_bits(4)
    assert least_stack_gap(4, mantissa(enough)) >= 1 / 4 > least_stack_gap(4, mantissa(enough - 1))
    needs: dict[Kind, int] = {"denoise": enough, "exact": enough + 1}
    for kind, needed in needs.items():
        for bits in (needed - 1, needed):
            points = RoundingPoints(activations=mantissa(bits))
            found = unmet(blueprint, convert(blueprint, kind, points=points), points)
            wanted = [f"activations have at least {needed} mantissa bits"]
            assert found == ([] if bits == needed else wanted)


def test_attention_weights_need_room_for_rounded_scores() -> None:
    """With rotations a best position's weight may be exp(-2 Delta_s) / N, not just 1 / N."""
    blueprint, _ = small_blueprint()
    embedded = Blueprint(program=blueprint.program)
    to = FloatFormat(mantissa_bits=4, exponent_bits=4)
    assert to.least_normal == 2.0**-6 < 1 / blueprint.max_positions
    narrow = RoundingPoints(activations=mantissa(7), attention=to)
    assert unmet(embedded, convert(embedded, "denoise", points=narrow), narrow) == []
    (condition,) = unmet(blueprint, convert(blueprint, "denoise", points=narrow), narrow)
    assert condition.startswith("exp(-")
    assert condition.endswith(f"/{blueprint.max_positions} is a normal number of attention weights")


def test_every_coordinate_and_writer_has_a_name() -> None:
    blueprint, _ = small_blueprint()
    names = [blueprint.wire_at(coordinate) for coordinate in range(blueprint.sizes.d)]
    assert len(set(names)) == len(names)
    assert sum(map(len, blueprint.wires)) == len(names)
    dense = blueprint.weights()
    for layer in range(1, blueprint.sizes.L + 1):
        for coordinate in range(blueprint.sizes.d):
            heads = np.flatnonzero(dense.W_O[layer - 1, :, coordinate].any(axis=-1))
            writer = blueprint.writer(layer, coordinate)
            assert heads.tolist() == ([] if writer is None else [writer[0]])
    assert blueprint.layer_name(1) == STACK_NAME == blueprint.gadget(1, 0)
    after = blueprint.num_before + 1
    assert blueprint.layer_name(after) == blueprint.program.layers[0].name
    assert blueprint.gadget(after, blueprint.sizes.d_ff) == ""


@pytest.mark.parametrize("name", ["DFA", "CoT", "SCoT"])
def test_denoised_and_rounded_machines_work_at_their_bounds(
    name: Literal["DFA", "CoT", "SCoT"],
) -> None:
    bits = 4
    case = dfa_case(bits)
    if name != "DFA":
        case = machine_case(bits, mode="cot" if name == "CoT" else "scot")
    case = without_embedding(case)
    for act in (mantissa(sufficient_mantissa_bits(bits)), BF16):
        points = RoundingPoints(activations=act, attention=BF16)
        conversion = convert(case.blueprint, "denoise", points=points)
        assert unmet(case.blueprint, conversion, points) == []
        assert find_failure(case, conversion, points) is None
    points = RoundingPoints(activations=mantissa(sufficient_mantissa_bits(bits) + 1))
    assert find_failure(case, convert(case.blueprint, "exact", points=points), points) is None
    # The least c in bfloat16, and what denoising does not repair below it.
    found = measure_least_c(case, "denoise")
    assert found.below is not None
    assert found.below < found.least < found.bound / 2
    assert found.failure is not None
    again = find_failure(case, conversion_of(case, "denoise", found.below), points_of("denoise"))
    assert again == found.failure
    assert str(again).startswith(f"layer {again.layer} after the heads, head 0 ({STACK_NAME}), ")


def test_one_mantissa_bit_less_fails_with_a_location() -> None:
    """The whole, with the least c of two mantissa bits; and the stack with the c of the bound."""
    case = without_embedding(dfa_case(8))
    conversion = conversion_of(case, "denoise", 6.0)
    failures = [
        find_failure(case, conversion, RoundingPoints(activations=mantissa(bits), attention=BF16))
        for bits in (2, 1)
    ]
    assert failures[0] is None
    assert str(failures[1]).startswith(
        f"layer 7 after the heads, head 1 ({STACK_NAME}), position 95: stack found is "
    )
    for bits, is_enough in ((2, True), (1, False)):
        act = mantissa(bits)
        c, positions = act.at_least(sufficient_c(12)), np.array([3773])
        error = first_error(12, c=c, activations=act, attention=BF16, positions=positions)
        assert (error is None) == is_enough
        assert error is None or (error.layer, error.head, error.position) == (8, 1, 3773)


def test_the_reference_of_ties_is_exact() -> None:
    """A mean of three ones is one, not three thirds of one."""
    blueprint, ids = small_blueprint()
    streams = TorchTransformer(blueprint.program, rope=blueprint.rope).streams(ids)
    assert len(streams) == 2 * blueprint.sizes.L + 1
    assert all(np.array_equal(stream, stream.round()) for stream in streams)


def test_what_takes_positional_embeddings_refuses_others() -> None:
    compiled = compile_dfa(regex_dfa("a*", alphabet="ab"), bits=2)
    assert make_blueprint(compiled, "embedding").rope is None
    with pytest.raises(ValueError, match="case: got one with rotary embeddings"):
        measure_errors(without_embedding(dfa_case(2)), "denoise")
