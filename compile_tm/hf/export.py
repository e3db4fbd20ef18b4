"""Export of machines to the compiled architecture.

    config.json  model.safetensors    nonzero entries of the matrices, by index and value
    configuration_compiled.py  modeling_compiled.py    code for `trust_remote_code=True`
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    machine.json                      the machine, as `sudocot compile` reads it
    self_test.json                    words with their expected tokens
    README.md                         model card

The folder is written to a temporary place and renamed when complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.conversion.weights import SoftmaxWeights, convert_denoise
from compile_tm.formats.floats import FloatFormat
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.card import model_card
from compile_tm.hf.configuration_compiled import MATRICES
from compile_tm.hf.folder import (
    MACHINE_FILE,
    generation_config,
    write_json,
)
from compile_tm.hf.modeling_compiled import SparseMatrix
from compile_tm.hf.self_test import choose_cases, self_test_case, write_cases
from compile_tm.hf.tokenizer import save_tokenizer
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.dense import DenseWeights
from data.model_format.weights import clear_write_errors, no_progress_bars
from data.runtime.files import staged_directory

Matrix = npt.NDArray[Any]
Weights = DenseWeights | SoftmaxWeights


def matrices(blueprint: Blueprint, conversion: Conversion | None = None) -> Weights:
    """Return all matrices of a hardmax transformer, or of its conversion."""
    dense = blueprint.weights()
    if conversion is None:
        return dense
    return convert_denoise(dense, c=conversion.c, layers=conversion.denoised)


def layer_matrices(weights: Weights, layer: int) -> dict[str, Matrix]:
    """Return the `MATRICES` of a layer, by index."""
    return {name: getattr(weights, name)[layer] for name in MATRICES}


def hf_model(
    compiled: CompiledProgram,
    conversion: Conversion | None = None,
    *,
    positions: Positions = "embedding",
    points: RoundingPoints | None = None,
) -> CompiledTransformerForCausalLM:
    """Return the model of a compiled program.

    Args:
        compiled: The program.
        conversion: Conversion to softmax attention; None for hardmax attention.
        positions: Positional embedding or rotary embeddings.
        points: Formats that a softmax model emulates in float32; None emulates none.

    Raises:
        ValueError: a format is given for hardmax attention or exceeds float32.
    """
    blueprint = make_blueprint(compiled, positions)
    weights = matrices(blueprint, conversion)
    layers = [layer_matrices(weights, n) for n in range(weights.sizes.L)]
    config = CompiledTransformerConfig(
        **config_fields(blueprint, weights, points or RoundingPoints()),
        attention="hardmax" if conversion is None else "softmax",
        num_entries=[[_count(matrix) for matrix in layer.values()] for layer in layers],
        num_embedding_entries=_count(weights.embedding),
        num_unembedding_entries=_count(weights.unembedding),
        source={
            **_source(compiled),
            "positions": positions,
            "conversion": conversion
            and {"c": conversion.c, "denoised": sorted(conversion.denoised)},
        },
        dtype="float32",
    )
    model = CompiledTransformerForCausalLM(config)
    for n, layer in enumerate(layers):
        for name, matrix in layer.items():
            _fill_matrix(model.get_submodule(f"layers.{n}.{name}"), matrix)
    _fill_matrix(model.embedding, weights.embedding)
    _fill_matrix(model.unembedding, weights.unembedding)
    model.generation_config = generation_config(compiled)
    torch.nn.Module.eval(model)
    return model


def config_fields(blueprint: Blueprint, weights: Weights, points: RoundingPoints) -> dict[str, Any]:
    """Return the fields of the configuration that follow from the program."""
    sizes, rope = weights.sizes, blueprint.rope
    fields: dict[str, Any] = {
        "vocab_size": sizes.vocab_size,
        "hidden_size": sizes.d,
        "num_hidden_layers": sizes.L,
        "num_attention_heads": sizes.H,
        "key_size": sizes.d_k,
        "value_size": sizes.d_v,
        "intermediate_size": sizes.d_ff,
        "position_coordinates": list(blueprint.program.position.coordinates),
        "rotary_periods": None,
        "rotary_heads": None,
        "activation_format": _format_bits(points.activations),
        "attention_format": _format_bits(points.attention),
    }
    if rope is not None:
        # Heads without rotary dimensions are left out, as rotating zeros changes nothing.
        rotates = np.any(weights.W_Q[:, :, : 2 * len(rope.periods)] != 0, axis=(2, 3))
        fields |= {
            "position_coordinates": [],
            "rotary_periods": list(rope.periods),
            "rotary_heads": [np.flatnonzero(row).tolist() for row in np.asarray(rotates)],
        }
    return fields


def _format_bits(to: FloatFormat | None) -> list[int] | None:
    return None if to is None else [to.mantissa_bits, to.exponent_bits]


def export_model(
    compiled: Compiled,
    folder: Path,
    *,
    conversion: Conversion | None = None,
    positions: Positions = "embedding",
    points: RoundingPoints | None = None,
    words: Sequence[str | Sequence[str]] = (),
) -> CompiledTransformerForCausalLM:
    """Write the model folder.

    Args:
        compiled: The compiled machine.
        folder: Folder to write, which must not exist.
        conversion: Conversion to softmax attention; None for hardmax attention.
        positions: Positional embedding or rotary embeddings.
        points: Formats that a softmax model emulates; None emulates none.
        words: Words of the self-test; empty chooses them automatically.

    Returns:
        The exported model.

    Raises:
        ValueError: the machine has no output on a word, or r is too small for it; or a format is
            given for hardmax attention or exceeds float32.
        OSError: the folder exists or cannot be written.
    """
    cases = [self_test_case(compiled, word) for word in words] or choose_cases(compiled)
    model = hf_model(compiled, conversion, positions=positions, points=points)
    with staged_directory(folder) as staged:
        with no_progress_bars(), clear_write_errors(folder):
            model.save_pretrained(staged)
        save_tokenizer(compiled, staged)
        write_json(compiled.machine_data(), staged / MACHINE_FILE, indent=1)
        write_cases(cases, staged)
        card = model_card(compiled, model, case=cases[-1])
        (staged / "README.md").write_text(card, encoding="utf-8")
    return model


def _count(matrix: Matrix) -> int:
    return int(np.count_nonzero(matrix))


def _fill_matrix(module: torch.nn.Module, matrix: Matrix) -> None:
    """Set the entries of a model's sparse matrix."""
    assert isinstance(module, SparseMatrix)
    assert module.shape == matrix.shape, (module.shape, matrix.shape)
    flat = matrix.reshape(-1)
    places = np.flatnonzero(flat)
    module.places = torch.from_numpy(places.astype(np.int32))
    module.values.data = torch.from_numpy(flat[places].astype(np.float32))


def _source(compiled: CompiledProgram) -> dict[str, str | int | None]:
    """Return the description of the compilation that `read_source` reads."""
    found: dict[str, str | int | None] = {
        "machine": compiled.name,
        "mode": compiled.mode,
        "bits": compiled.bits,
    }
    # Folders of automata have the option of Turing machines, too.
    own = {"reachable_only": False} if compiled.mode == "dfa" else compiled.options
    return {**found, **own}
