"""Program and model of a folder of the compiled architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.formats.floats import FloatFormat
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.folder import MACHINE_FILE, no_progress_bars
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.files import read_machine
from compile_tm.runtime.transformer import Part, Snapshot


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
        ValueError: the config lacks an option, or a file is malformed.
        OSError: a file is missing.
    """
    machine = read_machine(folder / MACHINE_FILE)
    source = config.source
    try:
        bits, mode, converted = int(source["bits"]), source["mode"], source["conversion"]
        conversion = converted and Conversion(
            c=float(converted["c"]), denoised=frozenset(converted["denoised"])
        )
        compiled: Compiled
        if isinstance(machine, Dfa):
            compiled = compile_dfa(machine, bits=bits)
        else:
            reachable_only = bool(source["reachable_only"])
            compiled = compile_machine(machine, mode=mode, bits=bits, reachable_only=reachable_only)
    except KeyError as error:
        raise ValueError(f"{folder}: config.json: source: {error} is missing") from error
    return FolderSource(
        compiled=compiled,
        # Older folders have no such option.
        blueprint=make_blueprint(compiled, source.get("positions", "embedding")),
        conversion=conversion,
        points=RoundingPoints(
            activations=_format(config.activation_format),
            attention=_format(config.attention_format),
        ),
    )


def load_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """Load the weights of a folder with the code of this package.

    Raises:
        OSError: a file is missing.
    """
    with no_progress_bars():
        return CompiledTransformerForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )


@torch.inference_mode()
def model_snapshots(model: Any, source: FolderSource, ids: Sequence[int]) -> list[Snapshot]:
    """Return the residual streams of a model on a sequence after each layer."""
    streams = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    snapshots = [Snapshot(0, Part.EMBEDDING, streams[0])]
    for (layer, is_denoising), stream in zip(source.origins, streams[1:], strict=True):
        part = Part.DENOISING if is_denoising else Part.MLP
        snapshots.append(Snapshot(layer, part, stream))
    return snapshots


def _format(bits: list[int] | None) -> FloatFormat | None:
    if bits is None:
        return None
    return FloatFormat(mantissa_bits=bits[0], exponent_bits=bits[1])
