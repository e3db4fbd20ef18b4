"""Tests of the program builder: conflicts, sizes, names, dense weights, a small program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from compile_tm.program.arithmetic import subtract_power, subtract_power_in_place
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.conflicts import ConflictError
from compile_tm.program.dense import dense_weights
from compile_tm.program.gadgets import copy, write, zero
from compile_tm.program.program import Program, Span
from compile_tm.runtime.transformer import TorchTransformer
from tests.compile_tm import naive_program


class Parts:
    """A builder with a few wires."""

    def __init__(self) -> None:
        self.build = ProgramBuilder(vocab_size=3, num_layers=2, position_bits=3)
        self.a = self.build.register("a", 2)
        self.b = self.build.register("b", 2)
        self.x, self.y = self.build.flag("x"), self.build.flag("y")
        self.stage = self.build.stage("stage")


def test_two_writers_conflict_unless_their_conditions_exclude_each_other() -> None:
    parts = Parts()
    parts.stage.mlp(1, copy(parts.a, parts.b, when=parts.x.on))
    parts.build.stage("other").mlp(1, write((parts.b[1], 1), when=parts.y.on))
    parts.build.embed(0, (parts.x, 1), (parts.y, 1))
    with pytest.raises(ConflictError, match="layer 1: 'stage' writes and 'other' writes coord"):
        parts.build.finish()

    parts = Parts()
    parts.stage.mlp(1, copy(parts.a, parts.b, when=parts.x.on))
    parts.stage.mlp(1, write((parts.b[1], 1), when=parts.x.off))
    parts.stage.mlp(2, write((parts.b, [1, 1]), when=parts.a.equals([1, 1])))
    parts.stage.mlp(2, write((parts.b, [1, -1]), when=parts.a[1].equals([-1])))
    parts.build.finish()


def test_flags_of_token_types_are_exclusive_by_their_embeddings() -> None:
    for token in (0, 1):
        parts = Parts()
        parts.build.embed(0, (parts.x, 1))
        parts.build.embed(token, (parts.y, 1))
        parts.stage.mlp(1, copy(parts.a, parts.b, when=parts.x.on))
        parts.stage.mlp(1, copy(parts.a, parts.b, when=parts.y.on))
        if token == 0:
            with pytest.raises(ConflictError):
                parts.build.finish()
        else:
            parts.build.finish()


def test_written_flags_exclude_each_other_only_if_declared() -> None:
    for is_declared in (False, True):
        parts = Parts()
        for n, flag in enumerate((parts.x, parts.y)):
            parts.stage.mlp(1, write((flag, 1), when=parts.a[n].equals([1])))
            parts.stage.mlp(2, copy(parts.a, parts.b, when=flag.on))
        if is_declared:
            parts.build.exclusive(parts.x, parts.y)
            parts.build.finish()
        else:
            with pytest.raises(ConflictError, match="layer 2"):
                parts.build.finish()


def test_zeroing_goes_with_one_writer_but_not_with_changes() -> None:
    parts = Parts()
    parts.stage.mlp(1, copy(parts.a, parts.b), zero(parts.b))
    parts.build.finish()
    parts.stage.mlp(1, subtract_power_in_place(parts.b, 0))
    with pytest.raises(ConflictError, match="zeroes and 'stage' changes"):
        parts.build.finish()


def test_heads_write_disjoint_coordinates() -> None:
    parts = Parts()
    for _ in range(2):
        parts.stage.head(1, queries=parts.x, keys=parts.x, values=parts.y, outputs=parts.a[0])
    parts.stage.head(
        2, queries=parts.x, keys=parts.x, values=parts.y * 2, outputs=parts.x + parts.x
    )
    with pytest.raises(
        ConflictError, match=r"layer 1: heads .* layer 2: .* writes a coordinate tw"
    ):
        parts.build.finish()


def test_heads_and_gadgets_of_a_layer_keep_their_names() -> None:
    parts = Parts()
    other = parts.build.stage("other")
    for stage, output in ((parts.stage, parts.a[0]), (other, parts.a[1])):
        stage.head(1, queries=parts.x, keys=parts.x, values=parts.y, outputs=output)
    parts.stage.mlp(1, zero(parts.a))
    other.mlp(1, copy(parts.a, parts.b))
    layer, empty = parts.build.finish().layers
    assert [head.name for head in layer.heads] == ["stage", "other"]
    assert layer.spans == (Span("stage", 0, 4), Span("other", 4, 8))
    assert (empty.heads, empty.spans) == ((), ())


def test_a_program_without_heads_and_gadgets_has_no_width() -> None:
    sizes = Parts().build.finish().sizes
    assert (sizes.L, sizes.H, sizes.d_k, sizes.d_v, sizes.d_ff) == (2, 0, 0, 0, 0)


def test_misplaced_parts_are_refused() -> None:
    parts = Parts()
    with pytest.raises(ValueError, match="layer: got 3, allowed are 1 to 2"):
        parts.stage.mlp(3, zero(parts.a))
    with pytest.raises(ValueError, match="differ in number"):
        parts.stage.head(1, queries=parts.a, keys=parts.x, values=parts.x, outputs=parts.y)
    with pytest.raises(ValueError, match="'a' is taken"):
        parts.build.register("a", 1)
    sizes = parts.build.finish().sizes
    parts.stage.mlp(1, zero(parts.a))
    with pytest.raises(ValueError, match="d_ff: the program needs 4, the sizes have 0"):
        parts.build.finish(sizes)
    with pytest.raises(ValueError, match="d: the program needs 9, the sizes have 10"):
        parts.build.finish(dataclasses.replace(sizes, d_ff=4, d=10))


def previous_token_program() -> Program:
    """Says the token before, token 0 at the start: two layers, one head."""
    build = ProgramBuilder(vocab_size=4, num_layers=2, position_bits=3)
    own, before = build.register("own", 2), build.register("before", 2)
    back = build.register("back", 3)
    codes = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
    build.embed(np.arange(4), (own, codes))
    build.unembed(np.arange(4), (before, codes))
    stage = build.stage("look back")
    stage.mlp(1, subtract_power(build.position, back, 0))
    stage.head(2, queries=back, keys=build.position, values=own, outputs=before)
    return build.finish()


def test_a_program_runs_alike_in_all_forms() -> None:
    program = previous_token_program()
    tokens = [3, 1, 2, 0, 1, 1, 3]
    expected = [tokens[0], *tokens[:-1]]
    assert naive_program.predict(program, tokens) == expected
    model = TorchTransformer(program)
    assert model.predict(np.array(tokens)).tolist() == expected
    streams = model.streams(np.array(tokens))
    for ours, naive in zip(streams, naive_program.run(program, tokens), strict=True):
        assert ours.tolist() == naive


def test_names_of_coordinates_and_layers() -> None:
    program = previous_token_program()
    assert program.wire_at(program.find("own").coordinates[1]) == "own[1]"
    assert [layer.name for layer in program.layers] == ["look back", "look back"]
    with pytest.raises(ValueError, match="no register or flag 'z'"):
        program.find("z")
    with pytest.raises(ValueError, match="coordinate: got 99"):
        program.wire_at(99)
    assert program.max_positions == 8


def test_dense_weights_are_ternary_and_match_the_sizes() -> None:
    weights = dense_weights(previous_token_program())
    matrices = [weights.W_Q, weights.W_K, weights.W_V, weights.W_O, weights.W_1, weights.W_2]
    matrices += [weights.embedding, weights.unembedding]
    assert all(set(np.unique(matrix)) <= {-1, 0, 1} for matrix in matrices)
    for layer, parts in enumerate(naive_program.dense_neurons(previous_token_program())):
        ours = (weights.W_1[layer], weights.b[layer], weights.W_2[layer].T)
        assert [array.tolist() for array in ours] == list(parts)
    total = sum(matrix.size for matrix in matrices) + weights.b.size
    assert total == weights.sizes.num_parameters


def test_generation_is_batched_over_prompts_of_any_length() -> None:
    model = TorchTransformer(previous_token_program())
    prompts = [np.array(p) for p in ([1, 2], [3], [2, 2, 1], [0, 1])]
    together = model.generate(prompts, stop={3})
    alone = [model.generate([prompt], stop={3})[0] for prompt in prompts]
    assert [ids.tolist() for ids in together] == [ids.tolist() for ids in alone]
    assert together[1].tolist() == [3, 3]
    assert len(together[0]) == 9  # the token after the last position, without a stop
    assert model.generate([], stop={3}) == []
    with pytest.raises(ValueError, match="allowed are 1 to 8 tokens"):
        model.generate([np.array([], dtype=np.int64)], stop={3})
    with pytest.raises(ValueError, match="positions: got 9, allowed are 8"):
        model.predict(np.zeros(9, dtype=np.int64))
