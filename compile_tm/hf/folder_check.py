"""Is a model folder what it says it is?

The machine in it is compiled again, and every weight compared, so that a difference is found with
its layer, matrix and register; the folder's model then generates the words of its self-test, whose
tokens are compared with the definitions' first; and the least gaps of its attention scores are
taken from the model's own activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from transformers import PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_NAME

from compile_tm.checks import HeadMargin, Problem, head_margin, least_margins, margin_problems
from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.export import MACHINE_FILE, Matrix, layer_matrices, matrices, no_progress_bars
from compile_tm.hf.modeling_compiled import SparseMatrix
from compile_tm.hf.self_test import SelfTestCase, read_cases, self_test_case
from compile_tm.hf.tokenizer import token_text
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.files import read_machine
from compile_tm.softmax.conversion import Conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderCheck:
    """What was found."""

    compiled: Compiled
    """The machine, compiled again."""
    problems: tuple[Problem, ...]
    """All that is wrong."""
    margins: tuple[HeadMargin, ...] = ()
    """The least margin of every head on the words of the self-test."""
    num_words: int = 0
    """Words that were generated from."""
    num_tokens: int = 0
    """Tokens that were generated and compared."""


def check_folder(folder: Path) -> FolderCheck:
    """Check a folder.

    Weights that cannot be those of any transformer of this shape are a problem too; the model is
    then not run.

    Raises:
        ValueError: the folder is no compiled machine, or a file in it is malformed.
        OSError: a file is missing.
    """
    config = CompiledTransformerConfig.from_pretrained(folder)
    compiled, conversion = read_compiled(folder, config)
    cases = read_cases(folder)
    problems = [*_tokenizer_problems(folder, compiled), *_case_problems(compiled, cases)]
    stored = _stored_matrices(folder, config)
    if isinstance(stored, Problem):
        return FolderCheck(compiled=compiled, problems=(*problems, stored))
    problems += _weight_problems(stored, compiled, conversion)
    model = load_model(folder)
    rows = [(case, n) for case in cases for n in range(len(case.segments))]
    problems += _generation_problems(model, compiled, rows)
    margins = least_margins(
        margin for case, n in rows for margin in _model_margins(model, case.segments[n][0][:-1])
    )
    # Scaling queries and keys by c scales gaps by its square, in which floats are not exact.
    least = 1.0 if conversion is None else conversion.c**2 * (1 - 1e-5)
    problems += margin_problems(margins, least=least)
    return FolderCheck(
        compiled=compiled,
        problems=tuple(problems),
        margins=tuple(margins),
        num_words=len(cases),
        num_tokens=sum(len(ids) - length for case in cases for ids, length in case.segments),
    )


def read_compiled(
    folder: Path, config: CompiledTransformerConfig
) -> tuple[Compiled, Conversion | None]:
    """Compile a folder's machine as it was compiled for the folder; and its conversion to softmax.

    Raises:
        ValueError: the config does not say how.
    """
    machine = read_machine(folder / MACHINE_FILE)
    source = config.source
    try:
        bits, mode, converted = int(source["bits"]), source["mode"], source["conversion"]
        conversion = converted and Conversion(
            c=float(converted["c"]), denoised=frozenset(converted["denoised"])
        )
        if isinstance(machine, Dfa):
            return compile_dfa(machine, bits=bits), conversion
        reachable_only = bool(source["reachable_only"])
        return (
            compile_machine(machine, mode=mode, bits=bits, reachable_only=reachable_only),
            conversion,
        )
    except KeyError as error:
        raise ValueError(f"{folder}: config.json: source: {error} is missing") from error


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """The folder's weights in the code of this package.

    Raises:
        OSError: a file is missing.
    """
    with no_progress_bars():
        return CompiledTransformerForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )


def _tokenizer_problems(folder: Path, compiled: Compiled) -> Iterator[Problem]:
    vocabulary = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True).get_vocab()
    for number, token in enumerate(compiled.vocabulary.tokens(range(compiled.vocabulary.size))):
        text = token_text(token)
        if vocabulary.get(text) != number:
            yield Problem("tokenizer", f"{text!r} has id {vocabulary.get(text)}, must be {number}")
            return


def _case_problems(compiled: Compiled, cases: list[SelfTestCase]) -> Iterator[Problem]:
    for case in cases:
        if case != self_test_case(compiled, case.word):
            where = f"self-test, word {' '.join(case.word)!r}"
            yield Problem(where, "its tokens are not those of the definitions")


def _stored_matrices(
    folder: Path, config: CompiledTransformerConfig
) -> dict[str, tuple[Matrix, Matrix]] | Problem:
    """Places and values of every matrix of the weights file, or why they cannot be read."""
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


def _weight_problems(
    stored: dict[str, tuple[Matrix, Matrix]], compiled: Compiled, conversion: Conversion | None
) -> Iterator[Problem]:
    weights = matrices(compiled.program, conversion)
    wanted = {"embedding": weights.embedding, "unembedding": weights.unembedding}
    for n in range(weights.sizes.L):
        wanted |= {f"layers.{n}.{name}": m for name, m in layer_matrices(weights, n).items()}
    for name in sorted(stored.keys() ^ wanted.keys()):
        yield Problem(name, "the machine has another number of layers")
        return
    for name, matrix in wanted.items():
        places, values = stored[name]
        have = np.zeros(matrix.size, dtype=np.float32)
        have[places[places < matrix.size]] = values[places < matrix.size]
        must = matrix.reshape(-1).astype(np.float32)
        differing = np.flatnonzero(have != must)
        if len(differing):
            first = int(differing[0])
            index = tuple(map(int, np.unravel_index(first, matrix.shape)))
            more = f"; {len(differing) - 1:,} more differ there" if len(differing) > 1 else ""
            reason = f"is {have[first]:g}, must be {must[first]:g}{more}"
            yield Problem(_place(name, index, compiled, conversion), reason)


def _place(
    name: str, index: tuple[int, ...], compiled: Compiled, conversion: Conversion | None
) -> str:
    """A matrix entry in words: layer, matrix, head or gadget, and register."""
    program = compiled.program
    matrix = name.rpartition(".")[2]
    if matrix in ("embedding", "unembedding"):
        text = token_text(compiled.vocabulary.token(index[0]))
        return f"{matrix} of {text}, {program.wire_at(index[1])}"
    layer = int(name.split(".")[1])
    where = [f"layer {layer + 1}, {matrix}"]
    if matrix in ("W_Q", "W_K", "W_V", "W_O"):
        head, *rest = index
        row, coordinate = rest if matrix != "W_O" else reversed(rest)
        where.append(f"head {head}, row {row}, {program.wire_at(coordinate)}")
        return ", ".join(where)
    neuron = index[-1] if matrix == "W_2" else index[0]
    # Denoising shifts the layers, so that gadgets are named where there is none.
    spans = () if conversion and conversion.denoised else program.layers[layer].spans
    gadgets = [f" ({span.name})" for span in spans if span.start <= neuron < span.stop]
    where.append(f"neuron {neuron}{''.join(gadgets)}")
    if len(index) > 1:
        where.append(program.wire_at(index[0] if matrix == "W_2" else index[1]))
    return ", ".join(where)


@torch.inference_mode()
def _generation_problems(
    model: Any, compiled: Compiled, rows: list[tuple[SelfTestCase, int]]
) -> Iterator[Problem]:
    """All segments as one batch, padded on the left."""
    parts = [case.segments[n] for case, n in rows]
    width = max(length for _, length in parts)
    ids = torch.full((len(parts), width), compiled.stop_ids[0])
    mask = torch.zeros_like(ids)
    for row, (tokens, length) in enumerate(parts):
        ids[row, width - length :] = torch.tensor(tokens[:length])
        mask[row, width - length :] = 1
    num_new = max(len(tokens) - length for tokens, length in parts)
    generated = model.generate(ids, attention_mask=mask, max_length=width + num_new)[:, width:]
    for (case, n), (tokens, length), row in zip(rows, parts, generated.tolist(), strict=True):
        for place, (got, wanted) in enumerate(zip(row, tokens[length:], strict=False)):
            if got != wanted:
                said, must = map(token_text, compiled.vocabulary.tokens([got, wanted]))
                where = f"word {' '.join(case.word)!r}, segment {n + 1}, position {length + place}"
                yield Problem(where, f"the model writes {said}, the machine {must}")
                break


@torch.inference_mode()
def _model_margins(model: Any, ids: tuple[int, ...]) -> Iterator[HeadMargin]:
    """From the model's own streams and weights, whatever its attention makes of the scores."""
    streams = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    later = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    for number, (layer, x) in enumerate(zip(model.layers, streams, strict=False), 1):
        q, k, _ = layer.queries_keys_values(x)
        scores = (q @ k.transpose(-1, -2)).masked_fill(later, -torch.inf)[0]
        best = scores.amax(dim=-1, keepdim=True)
        following = scores.masked_fill(scores == best, -torch.inf).amax(dim=-1)
        margins = (best[..., 0] - following).numpy()
        yield from (head_margin(number, head, row) for head, row in enumerate(margins))
