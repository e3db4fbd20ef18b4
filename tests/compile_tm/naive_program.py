"""Naive evaluation of a program, coordinate by coordinate in exact fractions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from compile_tm.program.program import Layer, Program

Stream = list[list[Fraction]]


def mlp(layer: Layer, x: Sequence[Fraction | int]) -> list[Fraction]:
    """What the MLP of a layer adds at one position, neuron by neuron."""
    weights: dict[int, list[tuple[int, int]]] = defaultdict(list)
    outputs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for neuron, coordinate, weight in zip(*(a.tolist() for a in layer.up), strict=True):
        weights[neuron].append((coordinate, weight))
    for neuron, coordinate, weight in zip(*(a.tolist() for a in layer.down), strict=True):
        outputs[neuron].append((coordinate, weight))
    added = [Fraction(0)] * len(x)
    for neuron, bias in enumerate(layer.bias.tolist()):
        hidden = max(0, bias + sum(weight * x[c] for c, weight in weights[neuron]))
        for coordinate, weight in outputs[neuron]:
            added[coordinate] += weight * hidden
    return added


def run(program: Program, tokens: Sequence[int]) -> list[Stream]:
    """Residual streams before layer 1, and after the heads and after the MLP of each layer."""
    stream: Stream = []
    for position, token in enumerate(tokens):
        x: list[Fraction] = [Fraction(int(value)) for value in program.embedding[token]]
        for bit, coordinate in enumerate(program.position.coordinates):
            x[coordinate] += 1 if position >> bit & 1 else -1
        stream.append(x)
    seen = [stream]
    for layer in program.layers:
        stream = [list(x) for x in stream]
        before = [list(x) for x in stream]
        for head in layer.heads:
            for i, x in enumerate(before):
                query = [x[c] for c in head.queries.coordinates]
                keys = [[y[c] for c in head.keys.coordinates] for y in before[: i + 1]]
                scores = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
                best = [j for j, score in enumerate(scores) if score == max(scores)]
                for value, target in zip(
                    head.values.coordinates, head.outputs.coordinates, strict=True
                ):
                    stream[i][target] += Fraction(sum(before[j][value] for j in best), len(best))
        seen.append([list(x) for x in stream])
        for state in stream:
            for coordinate, added in enumerate(mlp(layer, state)):
                state[coordinate] += added
        seen.append([list(x) for x in stream])
    return seen


def predict(program: Program, tokens: Sequence[int]) -> list[int]:
    """The token after each prefix; the scores must have one greatest."""
    answers = []
    for x in run(program, tokens)[-1]:
        scores = [
            sum(int(u) * v for u, v in zip(row, x, strict=True)) for row in program.unembedding
        ]
        answers.append(scores.index(max(scores)))
    return answers


def dense_neurons(program: Program) -> Iterator[tuple[list[list[int]], list[int], list[list[int]]]]:
    """W_1, b and the transpose of W_2 of each layer, a row a neuron, entry by entry."""
    width = program.sizes.d
    for layer in program.layers:
        up = [[0] * width for _ in range(program.sizes.d_ff)]
        down = [[0] * width for _ in range(program.sizes.d_ff)]
        for part, rows in ((layer.up, up), (layer.down, down)):
            for neuron, coordinate, weight in zip(*(a.tolist() for a in part), strict=True):
                rows[neuron][coordinate] += weight
        bias = layer.bias.tolist() + [0] * (program.sizes.d_ff - layer.num_neurons)
        yield up, bias, down
