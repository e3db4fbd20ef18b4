"""Builder of programs: heads and gadgets are placed in layers.

    build = ProgramBuilder(vocab_size=V, num_layers=L, position_bits=r)
    mark = build.flag("mark")
    build.embed(ids, (mark, 1))
    stage = build.stage("find the mark")
    stage.head(2, queries=.., keys=.., values=.., outputs=..)
    stage.mlp(2, copy(a, b, when=mark.on))
    program = build.finish()

Heads of a layer read the residual stream after the previous layer, gadgets after the heads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from compile_tm.program.conflicts import ConflictError, gadget_conflicts, head_conflicts
from compile_tm.program.neurons import Gadget, merge
from compile_tm.program.program import Head, Layer, Program, Sizes, Span
from compile_tm.program.registers import Flag, Kind, Register, Wires


class Stage:
    """A named part of a program; its heads and gadgets have its name."""

    def __init__(self, builder: ProgramBuilder, name: str) -> None:
        self._builder, self._name = builder, name

    def head(
        self, layer: int, *, queries: Wires, keys: Wires, values: Wires, outputs: Wires
    ) -> None:
        """Add an attention head.

        Raises:
            ValueError: no such layer, or queries and keys, or values and outputs, differ in width.
        """
        for one, other in ((queries, keys), (values, outputs)):
            if len(one) != len(other):
                raise ValueError(f"{self._name}: wires {one} and {other} differ in number")
        self._builder.heads[self._builder.layer_index(layer)].append(
            Head(self._name, queries, keys, values, outputs)
        )

    def mlp(self, layer: int, *gadgets: Gadget) -> None:
        """Add neurons to a layer's MLP.

        Raises:
            ValueError: no such layer.
        """
        place = self._builder.layer_index(layer)
        self._builder.gadgets[place] += [(self._name, gadget) for gadget in gadgets]


class ProgramBuilder:
    """Builder of one program; registers may be added until `finish`."""

    def __init__(self, *, vocab_size: int, num_layers: int, position_bits: int) -> None:
        self.vocab_size = vocab_size
        self.heads: list[list[Head]] = [[] for _ in range(num_layers)]
        self.gadgets: list[list[tuple[str, Gadget]]] = [[] for _ in range(num_layers)]
        self._wires: list[Register | Flag] = []
        self._names: set[str] = set()
        self._size = 0
        self._embedded: list[tuple[npt.ArrayLike, Wires, npt.ArrayLike]] = []
        self._unembedded: list[tuple[npt.ArrayLike, Wires, npt.ArrayLike]] = []
        self._exclusive: list[frozenset[int]] = []
        self.position = self.register(
            "position",
            position_bits,
            kind="position",
            meaning="The token's position in the segment.",
            symbol="I_pos",
        )

    def register(
        self, name: str, size: int, *, kind: Kind = "number", meaning: str = "", symbol: str = ""
    ) -> Register:
        """Add a register of `size` bits; `program.wires` declares whole classes of them."""
        coordinates = tuple(range(self._size, self._size + size))
        register = Register(coordinates, name, kind, meaning, symbol)
        self._add(register)
        return register

    def flag(self, name: str, *, kind: Kind = "flag", meaning: str = "", symbol: str = "") -> Flag:
        """Add a flag."""
        flag = Flag((self._size,), name, kind, meaning, symbol)
        self._add(flag)
        return flag

    def stage(self, name: str) -> Stage:
        """Return a named part of the program."""
        return Stage(self, name)

    def embed(self, tokens: npt.ArrayLike, *targets: tuple[Wires, npt.ArrayLike]) -> None:
        """Set embeddings.

        Args:
            tokens: Ids (n,) or one id.
            targets: Pairs of w wires and their values: (n, w), (w,) for all tokens, or a number.
        """
        self._embedded += [(tokens, wires, values) for wires, values in targets]

    def unembed(self, tokens: npt.ArrayLike, *targets: tuple[Wires, npt.ArrayLike]) -> None:
        """Set unembeddings; see `embed`."""
        self._unembedded += [(tokens, wires, values) for wires, values in targets]

    def exclusive(self, *flags: Flag) -> None:
        """Declare that at most one of these flags is on at any position after any layer.

        The conflict check relies on it; `measure.checks` verifies it on traces.
        """
        self._exclusive.append(frozenset(flag.coordinates[0] for flag in flags))

    def layer_index(self, layer: int) -> int:
        """Return the index of a layer, which is numbered from 1.

        Raises:
            ValueError: no such layer.
        """
        if not 1 <= layer <= len(self.heads):
            raise ValueError(f"layer: got {layer}, allowed are 1 to {len(self.heads)}")
        return layer - 1

    def finish(self, sizes: Sizes | None = None) -> Program:
        """Check and return the program.

        Args:
            sizes: Dimensions to pad to; None for the least ones.

        Raises:
            ConflictError: two heads, or two gadgets whose conditions may hold together, write one
                coordinate in a layer.
            ValueError: the program exceeds the sizes.
        """
        embedding, unembedding = self._matrix(self._embedded), self._matrix(self._unembedded)
        exclusive = (*self._exclusive, *self._type_flags(embedding))
        problems = list(self._conflicts(exclusive))
        if problems:
            raise ConflictError("; ".join(problems))
        layers = tuple(map(_finished_layer, self.heads, self.gadgets))
        least = self._least_sizes(layers)
        sizes = sizes or least
        for name in Sizes.__slots__:
            needed, given = getattr(least, name), getattr(sizes, name)
            is_exact = name in ("L", "d", "vocab_size")
            if needed > given or (is_exact and needed != given):
                raise ValueError(f"{name}: the program needs {needed}, the sizes have {given}")
        return Program(
            sizes=sizes,
            wires=tuple(self._wires),
            position=self.position,
            layers=layers,
            embedding=embedding,
            unembedding=unembedding,
            exclusive=exclusive,
        )

    def _add(self, wire: Register | Flag) -> None:
        if wire.name in self._names:
            raise ValueError(f"name: {wire.name!r} is taken")
        self._names.add(wire.name)
        self._wires.append(wire)
        self._size += len(wire)

    def _matrix(
        self, parts: list[tuple[npt.ArrayLike, Wires, npt.ArrayLike]]
    ) -> npt.NDArray[np.int8]:
        matrix = np.zeros((self.vocab_size, self._size), dtype=np.int8)
        for tokens, wires, values in parts:
            matrix[np.atleast_1d(np.asarray(tokens, dtype=np.intp))[:, None], wires.index] = values
        return matrix

    def _type_flags(self, embedding: npt.NDArray[np.int8]) -> Iterator[frozenset[int]]:
        """Pairs of flags that only embeddings set, never both at once."""
        written = {c for heads in self.heads for head in heads for c in head.outputs.coordinates}
        written |= {c for gadgets in self.gadgets for _, g in gadgets for c in g.outputs}
        flags = [
            wire.coordinates[0]
            for wire in self._wires
            if isinstance(wire, Flag) and wire.coordinates[0] not in written
        ]
        columns = embedding[:, flags].astype(np.float32)
        together = columns.T @ columns
        for a in range(len(flags)):
            for b in range(a):
                if together[a, b] == 0:
                    yield frozenset((flags[a], flags[b]))

    def _conflicts(self, exclusive: tuple[frozenset[int], ...]) -> Iterator[str]:
        for layer, (heads, gadgets) in enumerate(zip(self.heads, self.gadgets, strict=True), 1):
            for problem in head_conflicts(heads):
                yield f"layer {layer}: {problem}"
            for problem in gadget_conflicts(gadgets, exclusive=exclusive):
                yield f"layer {layer}: {problem}"

    def _least_sizes(self, layers: tuple[Layer, ...]) -> Sizes:
        heads = [head for layer in layers for head in layer.heads]
        return Sizes(
            L=len(layers),
            H=max((len(layer.heads) for layer in layers), default=0),
            d_k=max((len(head.queries) for head in heads), default=0),
            d_v=max((len(head.values) for head in heads), default=0),
            d_ff=max((layer.num_neurons for layer in layers), default=0),
            d=self._size,
            vocab_size=self.vocab_size,
        )


def _finished_layer(heads: list[Head], gadgets: list[tuple[str, Gadget]]) -> Layer:
    up, bias, down = merge([gadget for _, gadget in gadgets])
    ends = np.cumsum([0, *(gadget.num_neurons for _, gadget in gadgets)]).tolist()
    spans = tuple(
        Span(name, start, stop)
        for (name, _), start, stop in zip(gadgets, ends[:-1], ends[1:], strict=True)
    )
    return Layer(heads=tuple(heads), up=up, bias=bias, down=down, spans=spans)
