"""Export of compiled machines to model folders, shared by the `compile` commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.convert import convert, unmet
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.settings import Conversion, Denoising, RoundingPoints
from compile_tm.formats.floats import BF16, get_format
from compile_tm.machines.examples import EXAMPLES
from compile_tm.program.compiled import CompiledProgram
from compile_tm.stock.shape import Architecture, StockShape

if TYPE_CHECKING:
    from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

Attention = Literal["hardmax", "exact", "denoise"]
ArchitectureName = Literal["llama", "gpt-neox", "compiled"]
DtypeName = Literal["float32", "bfloat16"]
_OWN_OPTIONS = ("positions", "attention", "act", "att")
"""Options that require the compiled architecture."""
BF16_POINTS = RoundingPoints(activations=BF16)
"""Rounding points for which c is chosen if the model emulates no format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Architecture and number formats of the model folder of a machine."""

    architecture: ArchitectureName | None = None
    """Model architecture: Llama or GPT-NeoX, or compiled, which requires remote code (default:
    llama, or compiled if an option requires it)."""
    dtype: DtypeName = "float32"
    """Dtype of the weights of a llama or gpt-neox; llama weights are exact in both."""
    positions: Positions | None = None
    """Compiled architecture: embedding (default), or rope, with additional layers that extract
    positions from rotary embeddings, one bit per layer."""
    attention: Attention | None = None
    """Compiled architecture: hardmax (default), or softmax by the theorem on exact attention or
    the theorem on denoising."""
    act: str | None = None
    """Compiled architecture: activation format that a softmax model emulates in float32; c is
    representable in it (default: none; c is representable in bf16, and the model can be loaded in
    bf16)."""
    att: str | None = None
    """Compiled architecture: attention-weight format (default: not rounded)."""

    def __post_init__(self) -> None:
        given = [name for name in _OWN_OPTIONS if getattr(self, name) is not None]
        if self.architecture not in (None, "compiled") and given:
            raise ValueError(
                f"{given[0]}: got {getattr(self, given[0])}, allowed with architecture compiled"
            )
        architecture = export_architecture(self)
        check_dtype(architecture, self.dtype)
        if architecture == "compiled":
            check_formats(self.attention or "hardmax", act=self.act, att=self.att)


def export_architecture(options: ExportOptions) -> ArchitectureName:
    """Return the given architecture, or the one that the other options require."""
    if options.architecture is not None:
        return options.architecture
    needs_own = any(getattr(options, name) is not None for name in _OWN_OPTIONS)
    return "compiled" if needs_own else "llama"


def write_folder(
    compiled: Compiled,
    folder: Path,
    options: ExportOptions,
    *,
    words: Sequence[str | Sequence[str]],
) -> None:
    """Export a machine, and print its size and any theorem condition that is not met.

    Args:
        compiled: Compiled machine.
        folder: Folder to write.
        options: Architecture, position encoding, attention and formats.
        words: Words of the self-test.

    Raises:
        ValueError: a word of the self-test is invalid, or c exceeds the range of a format.
        OSError: the folder exists or cannot be written.
    """
    architecture = export_architecture(options)
    if architecture != "compiled":
        write_stock_folder(compiled, folder, architecture, dtype=options.dtype, words=words)
        return
    from compile_tm.hf.export import export_model

    positions, attention = options.positions or "embedding", options.attention or "hardmax"
    points = rounding_points(act=options.act, att=options.att)
    blueprint = make_blueprint(compiled, positions)
    # Without an activation format, c is representable in bf16.
    chosen = points if points.activations else replace(BF16_POINTS, attention=points.attention)
    conversion = make_conversion(blueprint, attention, points=chosen)
    model = export_model(
        compiled, folder, conversion=conversion, positions=positions, points=points, words=words
    )
    print_folder(model, folder, conversion)
    if conversion is not None:
        console = Console(highlight=False, markup=False, emoji=False)
        for condition in unmet(blueprint, conversion, chosen):
            console.print(f"unproven  condition of the proof: {condition}", soft_wrap=True)


def write_stock_folder(
    compiled: CompiledProgram,
    folder: Path,
    architecture: Architecture,
    *,
    dtype: DtypeName,
    words: Sequence[str | Sequence[str]],
) -> None:
    """Export a machine or solver as a stock model, and print its sizes.

    Raises:
        ValueError: a word of the self-test is invalid, or the program exceeds the head size.
        OSError: the folder exists or cannot be written.
    """
    from compile_tm.stock.folder import export_stock
    from compile_tm.stock.source import make_source

    source = make_source(compiled, architecture)
    export_stock(source, folder, dtype=dtype, words=words)
    size = sum(path.stat().st_size for path in folder.iterdir())
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"folder    {folder}, {size / 1e6:.2f} MB", soft_wrap=True)
    for line in shape_lines(source.shape):
        console.print(line, soft_wrap=True)


def shape_lines(shape: StockShape) -> list[str]:
    """Format the sizes of a stock model as lines of text."""
    size = shape.num_parameters
    widths = (
        f"{shape.num_layers} layers, width {shape.hidden_size:,}, {shape.num_heads} heads of "
        f"{shape.head_size}, feed-forward {shape.feed_forward_size:,}"
    )
    bytes_of = f"{4 * size / 1e6:,.1f} MB in float32, {2 * size / 1e6:,.1f} MB in bfloat16"
    return [
        f"model     {shape.architecture}: {widths}",
        f"weights   {size:,} ({bytes_of}), {shape.num_nonzero:,} nonzero",
    ]


def rounding_points(*, act: str | None, att: str | None) -> RoundingPoints:
    """Return rounding points by names of formats.

    Raises:
        ValueError: a format is unknown.
    """
    return RoundingPoints(
        activations=None if act is None else get_format(act),
        attention=None if att is None else get_format(att),
    )


def check_dtype(architecture: ArchitectureName, dtype: DtypeName) -> None:
    """Check the dtype of the weights.

    Raises:
        ValueError: the architecture is compiled, and the dtype is not float32.
    """
    if architecture == "compiled" and dtype != "float32":
        raise ValueError(f"dtype: got {dtype}, allowed with architecture compiled is float32")


def check_formats(attention: Attention, *, act: str | None, att: str | None) -> None:
    """Check the formats of activations and attention weights.

    Raises:
        ValueError: a format is unknown, or given for hardmax.
    """
    if attention == "hardmax" and (act or att):
        raise ValueError("act, att: got a format, allowed with attention exact or denoise")
    rounding_points(act=act, att=att)


def print_folder(
    model: CompiledTransformerForCausalLM, folder: Path, conversion: Conversion | None
) -> None:
    """Print the sizes of an exported model."""
    config = model.config
    size = sum(path.stat().st_size for path in folder.iterdir())
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"folder    {folder}, {size / 1e6:.2f} MB", soft_wrap=True)
    console.print(
        f"model     L {config.num_hidden_layers}, H {config.num_attention_heads}, "
        f"d_ff {config.intermediate_size}, d {config.hidden_size}"
    )
    if conversion is not None:
        console.print(f"softmax   c {conversion.c:g}, {len(conversion.denoised)} layers denoised")
    console.print(f"weights   {model.num_parameters():,} nonzero")


def make_conversion(
    blueprint: Blueprint, attention: Attention, *, points: RoundingPoints | None = None
) -> Conversion | None:
    """Return the conversion to softmax attention, with denoising of the layers that have heads.

    Args:
        blueprint: Hardmax transformer.
        attention: Attention; for hardmax, returns None.
        points: Rounding points; c is representable in the activation format.

    Raises:
        ValueError: the theorem's c exceeds the range of the activation format.
    """
    if attention == "hardmax":
        return None
    return convert(blueprint, attention, points=points, where=Denoising.HEADS)


def is_folder(machine: str) -> bool:
    """Return whether a machine argument is a model folder; examples take precedence."""
    return machine not in EXAMPLES and Path(machine).is_dir()
