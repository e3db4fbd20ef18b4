"""Writing a compiled machine to a folder, and telling what was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.rope.conversion import convert, unmet
from compile_tm.conversion.settings import Conversion, Denoising, RoundingPoints
from compile_tm.formats.floats import BF16, get_format
from compile_tm.machines.examples import EXAMPLES
from compile_tm.program.program import Program

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

Attention = Literal["hardmax", "exact", "denoise"]
BF16_POINTS = RoundingPoints(activations=BF16)
"""What c of a folder's model is chosen for if it emulates no format."""


def write_folder(
    compiled: Compiled,
    folder: Path,
    *,
    positions: Positions,
    attention: Attention,
    points: RoundingPoints,
    words: Sequence[str],
) -> None:
    """Export a machine, and print its size on the disk and what proofs ask for in vain.

    Args:
        compiled: The machine.
        folder: Where.
        positions: How the model is told positions.
        attention: Hardmax, or softmax by the conversion of this name.
        points: Formats that the model emulates. Without one for activations, c is a member of bf16.
        words: Words of the self-test.

    Raises:
        ValueError: a word of the self-test is not fit, or a format ends below c.
        OSError: the folder exists or cannot be written.
    """
    from compile_tm.hf.export import export_model

    blueprint = make_blueprint(compiled, positions)
    chosen = points if points.activations else replace(BF16_POINTS, attention=points.attention)
    conversion = None
    if attention != "hardmax":
        conversion = convert(blueprint, attention, points=chosen, where=Denoising.HEADS)
    model = export_model(
        compiled, folder, conversion=conversion, positions=positions, points=points, words=words
    )
    tell_folder(model, folder, conversion)
    if conversion is not None:
        console = Console(highlight=False, markup=False)
        for condition in unmet(blueprint, conversion, chosen):
            console.print(f"unproven  the proof wants: {condition}", soft_wrap=True)


def rounding_points(*, act: str | None, att: str | None) -> RoundingPoints:
    """The formats of these names.

    Raises:
        ValueError: there is no such format.
    """
    return RoundingPoints(
        activations=None if act is None else get_format(act),
        attention=None if att is None else get_format(att),
    )


def check_formats(attention: Attention, *, act: str | None, att: str | None) -> None:
    """Refuse formats of no model.

    Raises:
        ValueError: a format is unknown, or is for hardmax.
    """
    if attention == "hardmax" and (act or att):
        raise ValueError("act, att: got a format, allowed with attention exact or denoise")
    rounding_points(act=act, att=att)


def tell_folder(
    model: CompiledTransformerForCausalLM, folder: Path, conversion: Conversion | None
) -> None:
    """Print the sizes of a model that was written."""
    config = model.config
    size = sum(path.stat().st_size for path in folder.iterdir())
    console = Console(highlight=False, markup=False)
    console.print(f"folder    {folder}, {size / 1e6:.2f} MB", soft_wrap=True)
    console.print(
        f"model     L {config.num_hidden_layers}, H {config.num_attention_heads}, "
        f"d_ff {config.intermediate_size}, d {config.hidden_size}"
    )
    if conversion is not None:
        console.print(f"softmax   c {conversion.c:g}, {len(conversion.denoised)} layers denoised")
    console.print(f"weights   {model.num_parameters():,} are not zero")


def make_conversion(
    program: Program, attention: Attention, *, points: RoundingPoints | None = None
) -> Conversion | None:
    """The conversion of this name, with denoising at the layers that have heads.

    Args:
        program: The hardmax transformer.
        attention: None of hardmax.
        points: What is rounded: c is a member of the format of activations.

    Raises:
        ValueError: that format ends below the theorem's c.
    """
    if attention == "hardmax":
        return None
    blueprint = Blueprint(program=program)
    return convert(blueprint, attention, points=points, where=Denoising.HEADS)


def is_folder(machine: str) -> bool:
    """Whether what stands for a machine is a model folder; examples of that name come first."""
    return machine not in EXAMPLES and Path(machine).is_dir()


def check_left_out(config: DataclassInstance, names: Iterable[str]) -> None:
    """Refuse options that a model folder answers itself.

    Raises:
        ValueError: one was given.
    """
    for name in names:
        if getattr(config, name) not in (None, False):
            raise ValueError(f"{name}: got {getattr(config, name)}, allowed with a folder is none")
