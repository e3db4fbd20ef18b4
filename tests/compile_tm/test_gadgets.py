"""Tests of gadgets on all inputs: the function and number of neurons of each lemma."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from compile_tm.program.arithmetic import (
    move_head,
    subtract_bit,
    subtract_power,
    subtract_power_in_place,
)
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import compose, copy, table, write, zero, zero_flag
from compile_tm.program.neurons import Gadget
from compile_tm.program.program import Layer
from compile_tm.program.registers import Register, Wires, binary
from tests.compile_tm.naive_program import mlp


class Bench:
    """One layer with three registers, a move and two flags; gadgets are gated by on and off."""

    def __init__(self, size: int) -> None:
        self.build = ProgramBuilder(vocab_size=1, num_layers=1, position_bits=1)
        self.a = self.build.register("a", size)
        self.b = self.build.register("b", size)
        self.move = self.build.register("move", 2)
        self.on, self.off = self.build.flag("on"), self.build.flag("off")
        self.when = self.on.on & self.off.off

    def layer(self, *gadgets: Gadget) -> Layer:
        self.build.stage("test").mlp(1, *gadgets)
        return self.build.finish().layers[0]

    def added(
        self, layer: Layer, *contents: tuple[Wires, Sequence[int]], on: int = 1, off: int = 0
    ) -> list[int]:
        """What the layer adds to each coordinate, with these contents; all in -2 .. 2."""
        x = [0] * sum(len(wire) for wire in self.build._wires)
        for wires, values in (*contents, (self.on, [on]), (self.off, [off])):
            for coordinate, value in zip(wires.coordinates, values, strict=True):
                x[coordinate] = int(value)
        hidden = _hidden(layer, x)
        assert set(hidden) <= {0, 1}
        out = [int(value) for value in mlp(layer, x)]
        assert set(out) <= {-2, -1, 0, 1, 2}
        return out


def _hidden(layer: Layer, x: Sequence[int]) -> list[int]:
    sums = layer.bias.astype(np.int64)
    np.add.at(sums, layer.up.neuron, layer.up.weight * np.array(x)[layer.up.coordinate])
    return [int(value) for value in np.maximum(sums, 0)]


def bits(number: int, size: int) -> list[int]:
    return [int(bit) for bit in binary(number, num_bits=size)]


def test_binary_encoding() -> None:
    assert bits(11, 4) == [1, 1, -1, 1]
    assert binary([[0], [1]], num_bits=2).shape == (2, 1, 2)
    assert binary(0, num_bits=0).shape == (0,)


def at(out: Sequence[int], register: Register) -> list[int]:
    return [out[c] for c in register.coordinates]


def elsewhere(out: Sequence[int], register: Register) -> set[int]:
    return {v for c, v in enumerate(out) if c not in register.coordinates}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("make", "num", "expected"),
    [
        (copy, 2, lambda p, _k, _n: p),
        (subtract_power, 4, lambda p, k, _n: max(0, p - 2**k)),
    ],
    ids=["copy", "subtract"],
)
def test_writing_gadgets(
    size: int, make: Callable[..., Gadget], num: int, expected: Callable[[int, int, int], int]
) -> None:
    for k in range(1 if make is copy else size):
        bench = Bench(size)
        power = () if make is copy else (k,)
        gadget = make(bench.a, bench.b, *power, when=bench.when)
        assert gadget.num_neurons == num * size
        layer = bench.layer(gadget)
        for p in range(2**size):
            content = (bench.a, bits(p, size))
            out = bench.added(layer, content)
            assert at(out, bench.b) == bits(expected(p, k, size), size)
            assert elsewhere(out, bench.b) <= {0}
            for on, off in ((0, 0), (0, 1), (1, 1)):
                assert not any(bench.added(layer, content, on=on, off=off))
        assert not any(bench.added(layer, (bench.a, [0] * size)))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gadgets_in_place(size: int) -> None:
    for k in range(size):
        bench = Bench(size)
        gadget = subtract_power_in_place(bench.a, k, when=bench.when)
        assert gadget.num_neurons == 2 * size
        layer = bench.layer(gadget)
        for p in range(2**size):
            out = bench.added(layer, (bench.a, bits(p, size)))
            after = max(0, p - 2**k)
            changed = [x + y for x, y in zip(bits(p, size), at(out, bench.a), strict=True)]
            assert changed == bits(after, size)
            assert elsewhere(out, bench.a) <= {0}
            assert not any(bench.added(layer, (bench.a, bits(p, size)), on=0))


@pytest.mark.parametrize("size", [1, 3])
def test_zeroing(size: int) -> None:
    bench = Bench(size)
    gadget = zero(bench.a, when=bench.when)
    assert gadget.num_neurons == 2 * size
    layer = bench.layer(gadget)
    for values in product((-1, 0, 1), repeat=size):
        assert at(bench.added(layer, (bench.a, values)), bench.a) == [-v for v in values]
        assert not any(bench.added(layer, (bench.a, values), off=1))


def test_zeroing_flags_and_writing() -> None:
    bench = Bench(2)
    flag = bench.build.flag("flag")
    gadgets = (
        zero_flag(flag, when=bench.on.on),
        write((bench.a, [1, -1]), (bench.b[1], -1), when=bench.on.off),
    )
    assert [gadget.num_neurons for gadget in gadgets] == [1, 1]
    layer = bench.layer(*gadgets)
    assert bench.added(layer, (flag, [1]))[flag.coordinates[0]] == -1
    assert not any(bench.added(layer, (flag, [0])))
    out = bench.added(layer, (flag, [1]), on=0)
    assert (at(out, bench.a), at(out, bench.b)) == ([1, -1], [0, -1])
    with pytest.raises(ValueError, match="got 1 for 2 wires"):
        write((bench.a, [1]))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_head_movements(size: int) -> None:
    bench = Bench(size)
    left, stay, right, other = (bits(n, 2) for n in range(4))
    gadget = move_head(
        bench.a,
        bench.b,
        bench.move,
        left=np.array(left, dtype=np.int8),
        right=np.array(right, dtype=np.int8),
        when=bench.when,
    )
    assert gadget.num_neurons == 6 * size
    layer = bench.layer(gadget)
    for p in range(2**size - 1):
        for move, after in ((left, max(0, p - 1)), (stay, p), (right, p + 1), (other, p)):
            contents = ((bench.a, bits(p, size)), (bench.move, move))
            out = bench.added(layer, *contents)
            assert at(out, bench.b) == bits(after, size)
            assert elsewhere(out, bench.b) <= {0}
            assert not any(bench.added(layer, *contents, on=0))
            assert not any(bench.added(layer, (bench.move, move)))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_full_subtraction(size: int) -> None:
    steps = []
    for place in range(size):
        bench = Bench(size)
        gadget = subtract_bit(bench.a, bench.b, place, when=bench.when)
        assert gadget.num_neurons == 2 * (size - place)
        steps.append((bench, bench.layer(gadget)))
    for large in range(2**size):
        for small in range(large + 1):
            for on in (0, 1):
                rest = bits(large, size)
                for bench, layer in steps:
                    contents = ((bench.a, bits(small, size)), (bench.b, rest))
                    out = at(bench.added(layer, *contents, on=on), bench.b)
                    rest = [x + y for x, y in zip(rest, out, strict=True)]
                assert rest == bits(large - small if on else large, size)


def test_tables() -> None:
    bench = Bench(2)
    patterns, values = binary([0, 1, 3], num_bits=2), np.array([[1, 0], [0, -1], [-1, 1]])
    gadget = table(bench.a, patterns, bench.b, values, when=bench.when)
    assert gadget.num_neurons == 3
    layer = bench.layer(gadget)
    for p, row in ((0, [1, 0]), (1, [0, -1]), (2, [0, 0]), (3, [-1, 1])):
        out = bench.added(layer, (bench.a, bits(p, 2)))
        assert at(out, bench.b) == row
        assert not any(bench.added(layer, (bench.a, bits(p, 2)), on=0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_composition(count: int) -> None:
    width = max(count - 1, 0).bit_length()
    codes = binary(np.arange(count), num_bits=width)
    bench = Bench(count * width)
    gadget = compose(bench.a, bench.b, codes)
    assert gadget.num_neurons == 2 * count**2 * width
    layer = bench.layer(gadget)
    for f in product(range(count), repeat=count):
        for g in product(range(count), repeat=count):
            contents = (
                (bench.a, codes[list(f)].ravel().tolist()),
                (bench.b, codes[list(g)].ravel().tolist()),
            )
            out = at(bench.added(layer, *contents), bench.a)
            assert out == codes[[f[g[i]] for i in range(count)]].ravel().tolist()


def test_wrong_widths_and_gates_are_refused() -> None:
    bench = Bench(3)
    with pytest.raises(ValueError, match="a has 3 bits, move has 2: must be equal"):
        copy(bench.a, bench.move)
    with pytest.raises(ValueError, match="power: got 3, allowed are 0 to 2"):
        subtract_power_in_place(bench.a, 3)
    with pytest.raises(ValueError, match="which are inputs"):
        zero(bench.a, when=bench.a[0].equals([1]))
    with pytest.raises(ValueError, match="contradict each other"):
        _ = bench.on.on & bench.on.off
    for wrong in ([1], [1, 0, 1]):
        with pytest.raises(ValueError, match="allowed are 3 bits -1 or 1"):
            bench.a.equals(wrong)
