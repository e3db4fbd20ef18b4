"""Check of a folder of the compiled architecture against its machine.

The machine is compiled again, and every weight is compared; a difference is reported with layer,
matrix and register. The model then generates from the words of the self-test, whose expected tokens
are recomputed, and the minimum gaps of attention scores are computed from its activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from transformers.utils import SAFE_WEIGHTS_NAME

from compile_tm.constructions.tokens import token_text
from compile_tm.conversion.rope.bounds import least_stack_gap
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.decoder import by_length
from compile_tm.hf.export import Matrix, Weights, config_fields, layer_matrices, matrices
from compile_tm.hf.file_checks import check_cases, tokenizer_problems
from compile_tm.hf.modeling_compiled import SparseMatrix
from compile_tm.hf.self_test import SelfTestCase, read_cases, self_test_case
from compile_tm.hf.source import FolderSource, load_model, model_snapshots, read_config, read_source
from compile_tm.measure.checks import (
    HeadMargin,
    Problem,
    head_margin,
    least_margins,
    margin_problems,
)
from compile_tm.measure.failures import first_failure
from compile_tm.runtime.transformer import TorchTransformer


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCheck:
    """Result of a check."""

    source: FolderSource
    """The machine, compiled again."""
    problems: tuple[Problem, ...]
    """All differences."""
    margins: tuple[HeadMargin, ...] = ()
    """Minimum margin of every head on the words of the self-test."""
    num_words: int = 0
    """Number of words."""
    num_tokens: int = 0
    """Number of compared tokens."""


def check_folder(folder: Path) -> FolderCheck:
    """Check a folder.

    If the weights do not fit the configuration, the model is not run. Words of the self-test whose
    tokens differ from the definition are not run either.

    Raises:
        ValueError: the folder holds no compiled machine, or a file in it is malformed.
        OSError: a file is missing.
    """
    config = read_config(folder)
    source = read_source(folder, config)
    compiled = source.compiled
    cases, case_problems = check_cases(read_cases(folder), partial(self_test_case, compiled))
    weights = matrices(source.blueprint, source.conversion)
    problems = [
        *tokenizer_problems(folder, compiled.token_texts),
        *case_problems,
        *_config_problems(config, source, weights),
    ]
    stored = _stored_matrices(folder, config)
    if isinstance(stored, Problem):
        return FolderCheck(source=source, problems=(*problems, stored))
    problems += _weight_problems(stored, source, weights)
    if not cases:
        return FolderCheck(source=source, problems=tuple(problems))
    model = load_model(folder)
    rows = [(case, n) for case in cases for n in range(len(case.segments))]
    problems += _generation_problems(model, source, rows)
    margins = least_margins(
        margin for case, n in rows for margin in _model_margins(model, case.segments[n][0][:-1])
    )
    for margin in margins:
        problems += margin_problems([margin], least=_least_margin(source, margin.layer))
    return FolderCheck(
        source=source,
        problems=tuple(problems),
        margins=tuple(margins),
        num_words=len(cases),
        num_tokens=sum(len(ids) - length for case in cases for ids, length in case.segments),
    )


def _stored_matrices(
    folder: Path, config: CompiledTransformerConfig
) -> dict[str, tuple[Matrix, Matrix]] | Problem:
    """Return indices and values of every stored matrix, or the reason why the file is invalid."""
    path = folder / SAFE_WEIGHTS_NAME
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        return Problem(path.name, f"is damaged: {error}")
    model = CompiledTransformerForCausalLM(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in sorted(expected.keys() ^ tensors.keys()):
        return Problem(name, "is missing" if name in expected else "is unknown")
    matrices = {}
    for name, module in model.named_modules():
        if not isinstance(module, SparseMatrix):
            continue
        places, values = (tensors[f"{name}.{part}"] for part in ("places", "values"))
        for part, tensor in (("places", places), ("values", values)):
            shape = expected[f"{name}.{part}"]
            if tensor.shape != shape:
                return Problem(f"{name}.{part}", f"got shape {tensor.shape}, allowed is {shape}")
        size = int(np.prod(module.shape))
        if len(places) and not (
            places[0] >= 0 and places[-1] < size and (np.diff(places) > 0).all()
        ):
            return Problem(f"{name}.places", f"allowed are ascending numbers below {size}")
        matrices[name] = (places, values)
    return matrices


def _config_problems(
    config: CompiledTransformerConfig, source: FolderSource, weights: Weights
) -> Iterator[Problem]:
    """Yield the fields of the config that differ."""
    for name, expected in config_fields(source.blueprint, weights, source.points).items():
        if getattr(config, name) != expected:
            yield Problem(f"config, {name}", f"is {getattr(config, name)}, must be {expected}")


def _weight_problems(
    stored: dict[str, tuple[Matrix, Matrix]], source: FolderSource, weights: Weights
) -> Iterator[Problem]:
    expected = {"embedding": weights.embedding, "unembedding": weights.unembedding}
    for n in range(weights.sizes.L):
        expected |= {f"layers.{n}.{name}": m for name, m in layer_matrices(weights, n).items()}
    for name in sorted(stored.keys() ^ expected.keys()):
        yield Problem(name, "the number of layers differs from the machine's")
        return
    for name, matrix in expected.items():
        places, values = stored[name]
        stored_values = np.zeros(matrix.size, dtype=np.float32)
        stored_values[places[places < matrix.size]] = values[places < matrix.size]
        expected_values = matrix.reshape(-1).astype(np.float32)
        differing = np.flatnonzero(stored_values != expected_values)
        if len(differing):
            first = int(differing[0])
            index = tuple(map(int, np.unravel_index(first, matrix.shape)))
            more = f"; {len(differing) - 1:,} more differ there" if len(differing) > 1 else ""
            reason = f"is {stored_values[first]:g}, must be {expected_values[first]:g}{more}"
            yield Problem(_place(name, index, source), reason)


def _place(name: str, index: tuple[int, ...], source: FolderSource) -> str:
    """Describe a matrix entry by layer, matrix, head or gadget, and register."""
    blueprint = source.blueprint
    matrix = name.rpartition(".")[2]
    if matrix in ("embedding", "unembedding"):
        text = token_text(source.compiled.vocabulary.token(index[0]))
        return f"{matrix} of {text}, {blueprint.wire_at(index[1])}"
    layer = int(name.split(".")[1]) + 1
    where = [f"layer {layer}, {matrix}"]
    if matrix in ("W_Q", "W_K", "W_V", "W_O"):
        head, *rest = index
        row, coordinate = rest if matrix != "W_O" else reversed(rest)
        where.append(f"head {head}, row {row}, {blueprint.wire_at(coordinate)}")
        return ", ".join(where)
    neuron = index[-1] if matrix == "W_2" else index[0]
    origin, is_denoising = source.origins[layer - 1]
    gadget = "denoising" if is_denoising else blueprint.gadget(origin, neuron)
    where.append(f"neuron {neuron}" + (f" ({gadget})" if gadget else ""))
    if len(index) > 1:
        where.append(blueprint.wire_at(index[0] if matrix == "W_2" else index[1]))
    return ", ".join(where)


@torch.inference_mode()
def _generation_problems(
    model: Any, source: FolderSource, rows: list[tuple[SelfTestCase, int]]
) -> Iterator[Problem]:
    """Yield the wrong segments, and the first wrong activation of the first one.

    Prompts of the same length form a batch, as in `decoder.generate`.
    """
    compiled = source.compiled
    parts = [case.segments[n] for case, n in rows]
    prompts = [tokens[:length] for tokens, length in parts]
    generated: dict[int, list[int]] = {}
    for length, group in by_length(prompts):
        ids = torch.tensor([prompts[n] for n in group])
        longest = max(len(parts[n][0]) for n in group)
        sequences = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=longest)
        generated |= zip(group, sequences[:, length:].tolist(), strict=True)
    is_first = True
    for number, ((case, n), (tokens, length)) in enumerate(zip(rows, parts, strict=True)):
        for place, pair in enumerate(zip(generated[number], tokens[length:], strict=False)):
            if pair[0] != pair[1]:
                got, expected = map(token_text, compiled.vocabulary.tokens(pair))
                where = f"word {' '.join(case.word)!r}, segment {n + 1}, position {length + place}"
                yield Problem(where, f"the model predicts {got}, expected {expected}")
                if is_first:
                    yield from _first_departure(model, source, tokens[: length + place])
                is_first = False
                break


def _first_departure(model: Any, source: FolderSource, ids: tuple[int, ...]) -> Iterator[Problem]:
    """Return the first activation before a wrong token that differs from the hardmax model."""
    hardmax = TorchTransformer(source.blueprint.program, rope=source.blueprint.rope)
    failure = first_failure(
        model_snapshots(model, source, ids)[0],
        hardmax.streams(np.array(ids)),
        blueprint=source.blueprint,
        conversion=source.conversion,
        token_position=len(ids) - 1,
    )
    if failure is not None:
        yield Problem("the same word", str(failure))


def _least_margin(source: FolderSource, layer: int) -> float:
    """Minimum gap of scores: that of ternary queries and keys, or less in the position stack."""
    origin, _ = source.origins[layer - 1]
    gap = 1.0
    if origin <= source.blueprint.num_before:
        gap = least_stack_gap(len(source.blueprint.program.position), source.points.activations)
    # Scaling queries and keys by c scales gaps by c^2, with rounding errors.
    return gap if source.conversion is None else gap * source.conversion.c**2 * (1 - 1e-5)


@torch.inference_mode()
def _model_margins(model: Any, ids: tuple[int, ...]) -> Iterator[HeadMargin]:
    """Margins of all heads, from the model's residual streams and weights."""
    streams = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    later = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    turns = model.turns(torch.arange(len(ids))[None])
    for number, (layer, x) in enumerate(zip(model.layers, streams, strict=False), 1):
        q, k, _ = layer.queries_keys_values(x, turns)
        scores = (q @ k.transpose(-1, -2)).masked_fill(later, -torch.inf)[0]
        best = scores.amax(dim=-1, keepdim=True)
        following = scores.masked_fill(scores == best, -torch.inf).amax(dim=-1)
        margins = (best[..., 0] - following).numpy()
        yield from (head_margin(number, head, row) for head, row in enumerate(margins))
