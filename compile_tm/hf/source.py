"""Program and model of a folder of the compiled architecture."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.formats.floats import FloatFormat
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.folder import MACHINE_FILE, errors_name, recompile_machine, require, require_bits
from compile_tm.machines.files import read_machine
from compile_tm.runtime.transformer import Part, Snapshot
from data.model_format.weights import clear_read_errors, no_progress_bars
from data.runtime.documents import read_json

POSITIONS: tuple[str, ...] = get_args(Positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """The machine of a folder, compiled again with the folder's options."""

    compiled: Compiled
    """The compiled machine."""
    blueprint: Blueprint
    """The hardmax transformer."""
    conversion: Conversion | None
    """Conversion to softmax attention; None for hardmax attention."""
    points: RoundingPoints
    """Formats that the model emulates."""

    @property
    def positions(self) -> Positions:
        """Kind of positions of the model."""
        return "embedding" if self.blueprint.rope is None else "rope"

    @property
    def origins(self) -> list[tuple[int, bool]]:
        """See `Conversion.origins`."""
        return (self.conversion or Conversion(c=1.0)).origins(self.blueprint.sizes)


def read_source(folder: Path, config: CompiledTransformerConfig) -> FolderSource:
    """Compile the machine of a folder with the folder's options.

    Raises:
        ValueError: the folder holds no compiled machine, or a file is malformed; the message names
            it.
        OSError: a file cannot be read.
    """
    path = folder / "config.json"
    if not (folder / MACHINE_FILE).is_file():
        raise ValueError(
            f"{folder}: has no {MACHINE_FILE}; Sudoku solvers of the compiled architecture are run "
            "by `sudocot solve --model` and `sudocot eval run`"
        )
    machine = read_machine(folder / MACHINE_FILE)
    source = config.source
    if not isinstance(source, dict):
        raise ValueError(f"{path}: source: got {reprlib.repr(source)}, allowed is an object")
    bits = require_bits(path, source)
    # Older folders have no field `positions`.
    positions = require(path, {"positions": "embedding", **source}, "positions", POSITIONS)
    conversion = _read_conversion(path, source.get("conversion"))
    compiled = recompile_machine(machine, source, path=path, bits=bits)
    with errors_name(path):
        return FolderSource(
            compiled=compiled,
            blueprint=make_blueprint(compiled, positions),
            conversion=conversion,
            points=RoundingPoints(
                activations=_format(config.activation_format),
                attention=_format(config.attention_format),
            ),
        )


def read_config(folder: Path) -> CompiledTransformerConfig:
    """Read `config.json`.

    Raises:
        ValueError: it is malformed.
        OSError: it is missing.
    """
    path = folder / "config.json"
    read_json(path)
    with clear_read_errors(path):
        return CompiledTransformerConfig.from_pretrained(folder)


def load_model(folder: Path) -> Any:
    """Load the weights of a folder in float32 with the code of this package.

    Raises:
        OSError: a file is missing.
        ValueError: the folder is malformed.
    """
    with no_progress_bars(), clear_read_errors(folder):
        return CompiledTransformerForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )


@torch.inference_mode()
def model_snapshots(
    model: Any, source: FolderSource, ids: Sequence[int]
) -> tuple[list[Snapshot], Tensor]:
    """Return the residual streams of a model on a sequence after each layer, and logits (T, V)."""
    output = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    streams = output.hidden_states
    snapshots = [Snapshot(0, Part.EMBEDDING, streams[0])]
    for (layer, is_denoising), stream in zip(source.origins, streams[1:], strict=True):
        part = Part.DENOISING if is_denoising else Part.MLP
        snapshots.append(Snapshot(layer, part, stream))
    return snapshots, output.logits[0]


def _read_conversion(path: Path, value: Any) -> Conversion | None:
    if value is None:
        return None
    match value:
        case {"c": int() | float() as c, "denoised": [*layers]} if all(
            type(layer) is int for layer in layers
        ):
            with errors_name(path):
                return Conversion(c=float(c), denoised=frozenset(layers))
    raise ValueError(f"{path}: source: conversion: got {reprlib.repr(value)}")


def _format(bits: list[int] | None) -> FloatFormat | None:
    if bits is None:
        return None
    return FloatFormat(mantissa_bits=bits[0], exponent_bits=bits[1])
