"""Writing a compiled machine to a folder, and telling what was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from compile_tm.constructions.compiled import Compiled
from compile_tm.formats.floats import BF16
from compile_tm.program.program import Program
from compile_tm.softmax.conversion import (
    Conversion,
    Denoising,
    RoundingPoints,
    denoise_conversion,
    exact_conversion,
)

if TYPE_CHECKING:
    from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

Attention = Literal["hardmax", "exact", "denoise"]
BF16_POINTS = RoundingPoints(activations=BF16)
"""What c of a folder's model is chosen for."""


def write_folder(
    compiled: Compiled, folder: Path, *, attention: Attention, words: Sequence[str]
) -> None:
    """Export a machine and print its size on the disk.

    Args:
        compiled: The machine.
        folder: Where.
        attention: Hardmax, or softmax by the conversion of this name, with c in bf16.
        words: Words of the self-test.

    Raises:
        ValueError: a word of the self-test is not fit.
        OSError: the folder exists or cannot be written.
    """
    from compile_tm.hf.export import export_model

    conversion = make_conversion(compiled.program, attention, points=BF16_POINTS)
    model = export_model(compiled, folder, conversion=conversion, words=words)
    tell_folder(model, folder, conversion)


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
    length = program.max_positions
    if attention == "hardmax":
        return None
    if attention == "exact":
        return exact_conversion(program.sizes, length=length, points=points)
    return denoise_conversion(program, length=length, points=points, where=Denoising.HEADS)
