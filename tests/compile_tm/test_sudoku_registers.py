"""Tests of `registers.json` of the compiled solver in every layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from compile_tm.commands.folders import BF16_POINTS, make_conversion
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.hf.sudoku import export_sudoku
from compile_tm.program.register_file import RegisterEntry
from compile_tm.runtime.trace import Trace, trace_program
from tests.compile_tm.sudoku_runs import compiled_with_model, searching_puzzles, solver_segments

Values = npt.NDArray[np.float64]
CASES: list[tuple[str, Mode, int, int]] = [
    ("4x4", "cot", 9, 1 << 30),
    ("4x4", "scot", 8, 12),
    ("6x6", "scot", 10, 40),
]


def is_same(one: list[Values], other: list[Values]) -> bool:
    return all(map(np.array_equal, one, other))


def registers(
    name: str, mode: Mode, bits: int, length: int
) -> tuple[list[RegisterEntry], list[Trace]]:
    """Meanings, and runs of segments of three puzzles."""
    segment_tokens = length if mode == "scot" else 512
    compiled, _ = compiled_with_model(name, mode, bits, segment_tokens)
    runs = [
        trace_program(compiled.program, ids[:-1])
        for givens in searching_puzzles(name, 3, seed=5)
        for ids, _ in solver_segments(name, givens, length)[:4]
    ]
    covered = {c for meaning in compiled.registers() for c in meaning.coordinates}
    assert covered == {c for wire in compiled.program.wires for c in wire.coordinates}
    return compiled.registers(), runs


@pytest.mark.parametrize(("name", "mode", "bits", "length"), CASES)
def test_registers_hold_from_the_first_layer_to_the_last(
    name: str, mode: Mode, bits: int, length: int
) -> None:
    found, runs = registers(name, mode, bits, length)
    depth = len(runs[0].program.layers)
    late = set()
    for meaning in found:
        place = list(meaning.coordinates)
        layers = [[run.after_layer(n)[:, place] for run in runs] for n in range(depth + 1)]

        assert 0 <= meaning.first <= meaning.last <= depth
        for layer in range(meaning.first, meaning.last + 1):
            assert is_same(layers[meaning.first], layers[layer]), (meaning.name, layer)
        if meaning.last < depth:
            assert not is_same(layers[meaning.last], layers[meaning.last + 1]), meaning.name
        if meaning.first > 0 and is_same(*layers[meaning.first - 1 : meaning.first + 1]):
            late.add(meaning.name)
    # Bounds of searches that no trace here reaches, and what only other prompts or modes change.
    assert late <= {
        *("alternative line", "alternative digit", "has alternative"),
        *("line", "has line", "block start", "dead end"),
    }


def test_layers_of_a_denoised_model_are_its_own(tmp_path: Path) -> None:
    """Layers that the conversion adds are counted, and activations are where the file says."""
    compiled, _ = compiled_with_model("4x4", "scot", 8, 12)
    conversion = make_conversion(Blueprint(program=compiled.program), "denoise", points=BF16_POINTS)
    assert conversion is not None
    assert conversion.denoised
    model = export_sudoku(compiled, tmp_path / "model", conversion=conversion)
    content = json.loads((tmp_path / "model" / "registers.json").read_text())
    assert content["format"] == 1
    ids = solver_segments("4x4", searching_puzzles("4x4", 1, seed=5)[0], 12)[0][0][:-1]
    run = trace_program(compiled.program, ids)
    output = model(torch.from_numpy(ids[None].astype(np.int64)), output_hidden_states=True)
    assert output.hidden_states is not None
    for meaning, entry in zip(compiled.registers(), content["registers"], strict=True):
        assert entry["name"] == meaning.name
        expected = run.after_layer(meaning.first)[:, list(meaning.coordinates)]
        for layer in entry["layers"]:
            values = output.hidden_states[layer][0, :, entry["coordinates"]].numpy()
            assert np.abs(values - expected).max() < 1 / 4, meaning.name
