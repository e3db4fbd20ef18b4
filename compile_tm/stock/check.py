"""Check of a stock folder against the program that it was compiled from.

The machine or solver is compiled again, and config, tokenizer and every weight are compared. The
model then runs the sequences of its self-test, whose expected tokens are recomputed. For each run,
the check covers the distance of every norm from the identity, the margin of every head, and the
residual stream after attention and feed-forward layer of each layer, which is compared with the
program's trace. The first difference is reported with layer, head or gadget, position and register.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_NAME

from compile_tm.hf.file_checks import check_cases, tokenizer_problems
from compile_tm.hf.self_test import SelfTestCase, read_cases
from compile_tm.measure.checks import HeadMargin, Problem, head_margin, least_margins
from compile_tm.runtime.trace import Trace, trace_program
from compile_tm.stock.attention import LEAST_MARGIN
from compile_tm.stock.folder import stock_config, stock_tensors
from compile_tm.stock.observe import Observation, load_stock_model, observe
from compile_tm.stock.positions import STAGE
from compile_tm.stock.self_test import expected_case
from compile_tm.stock.shape import layer_heads
from compile_tm.stock.source import StockSource, read_source
from data.model_format.weights import clear_read_errors

TOLERANCE = 1 / 4
"""Allowed difference of a coordinate from the program's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockCheck:
    """Result of a check."""

    source: StockSource
    problems: tuple[Problem, ...]
    margins: tuple[HeadMargin, ...] = ()
    """The minimum margin of every head of the self-test, in units of G."""
    norm_delta: float = 0.0
    """Greatest distance of a norm from the identity."""
    norm: int = 0
    """Number of that norm, from 1."""
    deviation: float = 0.0
    """Maximum difference of a coordinate from the program's value."""
    num_words: int = 0
    num_tokens: int = 0
    """Number of compared tokens."""


def check_stock_folder(folder: Path, *, dtype: torch.dtype = torch.float32) -> StockCheck:
    """Check a folder.

    Words of the self-test whose tokens differ from the definition are not run.

    Args:
        folder: The folder.
        dtype: dtype of the model.

    Raises:
        ValueError: the folder holds no compiled model, or a file in it is malformed.
        OSError: a file is missing.
    """
    source = read_source(folder)
    cases, case_problems = check_cases(read_cases(folder), partial(expected_case, source.compiled))
    problems = [
        *_config_problems(folder, source),
        *tokenizer_problems(folder, source.compiled.token_texts),
        *case_problems,
    ]
    weight_problems = list(_weight_problems(folder, source))
    problems += weight_problems
    if not cases or any(problem.where == SAFE_WEIGHTS_NAME for problem in weight_problems):
        return StockCheck(source=source, problems=tuple(problems))
    model = load_stock_model(folder, dtype=dtype)
    runs = [_run(model, source, case, n) for case in cases for n in range(len(case.segments))]
    for run in runs:
        problems += run.problems
    deltas = np.array([run.norm_deltas for run in runs]).max(axis=0)
    return StockCheck(
        source=source,
        problems=tuple(problems),
        margins=tuple(least_margins(margin for run in runs for margin in run.margins)),
        norm_delta=float(deltas.max()),
        norm=int(deltas.argmax()) + 1,
        deviation=max(run.deviation for run in runs),
        num_words=len(cases),
        num_tokens=sum(len(ids) - length for case in cases for ids, length in case.segments),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    problems: list[Problem]
    margins: list[HeadMargin]
    norm_deltas: tuple[float, ...]
    deviation: float


def _run(model: Any, source: StockSource, case: SelfTestCase, number: int) -> _Run:
    """Run one segment and compare it with the trace."""
    ids, prompt_length = case.segments[number]
    seen = observe(model, source, ids[:-1])
    trace = trace_program(source.compiled.program, np.array(ids[:-1]))
    where = f"word {' '.join(case.word)!r}, segment {number + 1}"
    problems: list[Problem] = []
    wrong = np.flatnonzero(seen.predicted[prompt_length - 1 :] != np.array(ids[prompt_length:]))
    if len(wrong):
        place = prompt_length - 1 + int(wrong[0])
        texts = source.compiled.token_texts
        got, expected = texts[int(seen.predicted[place])], texts[ids[place + 1]]
        more = f"; {len(wrong) - 1:,} more are wrong" if len(wrong) > 1 else ""
        reason = f"the model predicts {got}, expected {expected}{more}"
        problems.append(Problem(f"{where}, position {place + 1}", reason))
    deviation = 0.0
    for stage in _stages(source, seen, trace):
        difference = np.abs(stage.got[:, : stage.expected.shape[1]] - stage.expected)
        deviation = max(deviation, float(difference.max()))
        if deviation > TOLERANCE:
            problems.append(_departure(source, stage, difference, where))
            break
    margins = _margins(source, seen)
    problems += [
        Problem(
            f"{where}, layer {m.layer}, head {m.head}, position {m.position}",
            f"its margin is {m.margin:.3g} G, must be at least {LEAST_MARGIN:g} G",
        )
        for m in margins
        if m.margin < LEAST_MARGIN
    ]
    return _Run(problems, margins, seen.norm_deltas, deviation)


@dataclass(frozen=True, slots=True)
class _Stage:
    """The residual stream at one point of the computation."""

    layer: int
    """From 1; 0 is the embedding."""
    is_attention: bool
    got: npt.NDArray[np.float32]
    expected: npt.NDArray[np.float64]
    """(T, d)."""


def _stages(source: StockSource, seen: Observation, trace: Trace) -> Iterator[_Stage]:
    """Yield the points at which the stream is compared, in order."""
    num_before = source.program.num_position_layers
    position = source.compiled.program.position.index
    start = trace.streams[0]
    unplaced = start.copy()
    unplaced[:, position] = source.compiled.program.embedding[trace.ids][:, position]
    yield _Stage(0, is_attention=False, got=seen.embedded, expected=unplaced)
    for number, layer in enumerate(seen.layers, 1):
        inner = number - num_before
        if inner > 0:
            attended, after = trace.streams[2 * inner - 1], trace.streams[2 * inner]
        else:
            # The heads of the last position layer write the position.
            attended = after = start if inner == 0 else unplaced
        yield _Stage(number, is_attention=True, got=layer.attended, expected=attended)
        yield _Stage(number, is_attention=False, got=layer.after, expected=after)


def _departure(
    source: StockSource, stage: _Stage, difference: npt.NDArray[np.float64], where: str
) -> Problem:
    """Return the coordinate with the largest error at the first wrong position of a stage."""
    position = int(np.flatnonzero((difference > TOLERANCE).any(axis=1))[0])
    coordinate = int(difference[position].argmax())
    name = source.wire_at(coordinate)
    writer = _writer(source, stage, coordinate)
    got, expected = stage.got[position, coordinate], stage.expected[position, coordinate]
    point = f"after {'attention' if stage.is_attention else 'the feed-forward layer'}"
    place = (
        f"layer {stage.layer}" + (f", {writer}" if writer else "") if stage.layer else "embedding"
    )
    reason = f"{place}: {name} is {got:.3g} {point}, must be {expected:g}"
    return Problem(f"{where}, first difference at position {position}", reason)


def _writer(source: StockSource, stage: _Stage, coordinate: int) -> str:
    """Return the head or gadget that writes a coordinate at a stage."""
    if not stage.layer:
        return ""
    if stage.is_attention:
        heads = layer_heads(source.program, stage.layer - 1, source.shape.head_size)
        for number, head in enumerate(heads):
            if coordinate in head.outputs:
                return f"head {number} ({head.name})"
        return ""
    inner = stage.layer - source.program.num_position_layers
    if inner < 1:
        return STAGE
    layer = source.compiled.program.layers[inner - 1]
    neurons = layer.down.neuron[layer.down.coordinate == coordinate]
    spans = [s.name for s in layer.spans if ((neurons >= s.start) & (neurons < s.stop)).any()]
    return f"gadget {', '.join(dict.fromkeys(spans))}" if spans else ""


def _margins(source: StockSource, seen: Observation) -> list[HeadMargin]:
    """Return the minimum margin of every head that the program uses."""
    found = []
    for n, layer in enumerate(seen.layers):
        heads = list(layer_heads(source.program, n, source.shape.head_size))
        found += [head_margin(n + 1, head, layer.margins[head]) for head in range(len(heads))]
    return found


def _config_problems(folder: Path, source: StockSource) -> Iterator[Problem]:
    """Yield the fields of the config that differ."""
    made = stock_config(source, dtype="float32")
    with clear_read_errors(folder):
        config = type(made).from_pretrained(folder)
    expected, stored = made.to_dict(), config.to_dict()
    for name in sorted(expected.keys() - {"dtype", "transformers_version"}):
        if stored.get(name) != expected[name]:
            yield Problem(f"config, {name}", f"is {stored.get(name)}, must be {expected[name]}")


def _weight_problems(folder: Path, source: StockSource) -> Iterator[Problem]:
    """Yield tensors that are missing, unexpected, or differ in shape or values."""
    try:
        with safe_open(folder / SAFE_WEIGHTS_NAME, framework="pt") as stored:
            unknown = set(stored.keys())
            for name, expected in stock_tensors(source):
                if name not in unknown:
                    yield Problem(SAFE_WEIGHTS_NAME, f"{name} is missing")
                    return
                unknown.remove(name)
                tensor = stored.get_tensor(name)
                if tensor.shape != expected.shape:
                    reason = (
                        f"{name} has shape {tuple(tensor.shape)}, must be {tuple(expected.shape)}"
                    )
                    yield Problem(SAFE_WEIGHTS_NAME, reason)
                    return
                yield from _tensor_problems(source, name, tensor, expected.to(tensor.dtype))
            for name in sorted(unknown):
                yield Problem(SAFE_WEIGHTS_NAME, f"{name} is unknown")
    except SafetensorError as error:
        yield Problem(SAFE_WEIGHTS_NAME, f"is damaged: {error}")


def _tensor_problems(
    source: StockSource, name: str, tensor: Tensor, expected: Tensor
) -> Iterator[Problem]:
    differing = (tensor != expected).nonzero()
    if not len(differing):
        return
    index = tuple(differing[0].tolist())
    more = f"; {len(differing) - 1:,} more entries differ" if len(differing) > 1 else ""
    reason = f"is {float(tensor[index]):g}, must be {float(expected[index]):g}{more}"
    yield Problem(_entry(source, name, index), reason)


def _entry(source: StockSource, name: str, index: tuple[int, ...]) -> str:
    """Describe an entry of a tensor by layer, matrix, head or neuron, and register."""
    parts = name.split(".")
    where = [f"layer {int(parts[2]) + 1}, {parts[-2]}"] if "layers" in parts else [parts[-2]]
    shape = source.shape
    is_transposed = parts[-2] in ("o_proj", "dense", "down_proj", "dense_4h_to_h")
    if len(index) == 1 and is_transposed:
        return ", ".join([*where, "bias", source.wire_at(index[0])])
    row, column = (index[0], index[-1]) if not is_transposed else (index[-1], index[0])
    if parts[-2] in ("q_proj", "k_proj", "v_proj", "o_proj", "dense"):
        where.append(f"head {row // shape.head_size}, dimension {row % shape.head_size}")
    elif parts[-2] == "query_key_value":
        head, rest = divmod(row, 3 * shape.head_size)
        kind = ("query", "key", "value")[rest // shape.head_size]
        where.append(f"head {head}, {kind}, dimension {rest % shape.head_size}")
    elif "mlp" in parts:
        where.append(f"neuron {row}")
    elif len(index) > 1:
        where.append(f"token {source.compiled.token_texts[row]}")
    if len(index) > 1 or "norm" in parts[-2]:
        where.append(source.wire_at(column))
    return ", ".join(where)
