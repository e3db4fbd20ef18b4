"""Writing a compiled machine to a folder, and telling what was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from rich.console import Console

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.rope.blueprint import Blueprint, Positions, make_blueprint
from compile_tm.conversion.rope.conversion import convert, unmet
from compile_tm.conversion.settings import Conversion, Denoising, RoundingPoints
from compile_tm.formats.floats import BF16, get_format
from compile_tm.machines.examples import EXAMPLES
from compile_tm.program.program import Program
from compile_tm.stock.assemble import AnyCompiled
from compile_tm.stock.shape import Architecture, StockShape

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

Attention = Literal["hardmax", "exact", "denoise"]
ArchitectureName = Literal["llama", "gpt-neox", "compiled"]
DtypeName = Literal["float32", "bfloat16"]
_OWN_OPTIONS = ("positions", "attention", "act", "att")
"""Options of the compiled architecture alone."""
BF16_POINTS = RoundingPoints(activations=BF16)
"""What c of a folder's model is chosen for if it emulates no format."""


class ExportOptions(Protocol):
    """Options of the commands that write a folder."""

    @property
    def architecture(self) -> ArchitectureName | None:
        """Class of the model."""

    @property
    def dtype(self) -> DtypeName:
        """Format of the weights of a stock model."""

    @property
    def positions(self) -> Positions | None:
        """How the compiled architecture is given positions."""

    @property
    def attention(self) -> Attention | None:
        """Its attention."""

    @property
    def act(self) -> str | None:
        """Its format of activations."""

    @property
    def att(self) -> str | None:
        """Its format of attention weights."""


def check_export(options: ExportOptions) -> None:
    """Refuse options of another architecture, and formats of no model.

    Raises:
        ValueError: an option is for another architecture, or a format is unknown.
    """
    given = [name for name in _OWN_OPTIONS if getattr(options, name) is not None]
    if options.architecture not in (None, "compiled") and given:
        raise ValueError(
            f"{given[0]}: got {getattr(options, given[0])}, allowed with architecture compiled"
        )
    if export_architecture(options) == "compiled":
        if options.dtype != "float32":
            raise ValueError(
                f"dtype: got {options.dtype}, allowed with architecture compiled is float32"
            )
        check_formats(options.attention or "hardmax", act=options.act, att=options.att)


def export_architecture(options: ExportOptions) -> ArchitectureName:
    """The architecture that is named, or the one that the other options need."""
    if options.architecture is not None:
        return options.architecture
    needs_own = any(getattr(options, name) is not None for name in _OWN_OPTIONS)
    return "compiled" if needs_own else "llama"


def write_folder(
    compiled: Compiled, folder: Path, options: ExportOptions, *, words: Sequence[str]
) -> None:
    """Export a machine, and print its size on disk and the conditions of theorems that do not hold.

    Args:
        compiled: The machine.
        folder: Folder to write.
        options: Architecture, and of the compiled one positions, attention and formats.
        words: Words of the self-test.

    Raises:
        ValueError: a word of the self-test is not fit, or a format ends below c.
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
    # Without a format of activations, c is a member of bf16.
    chosen = points if points.activations else replace(BF16_POINTS, attention=points.attention)
    conversion = None
    if attention != "hardmax":
        conversion = convert(blueprint, attention, points=chosen, where=Denoising.HEADS)
    model = export_model(
        compiled, folder, conversion=conversion, positions=positions, points=points, words=words
    )
    tell_folder(model, folder, conversion)
    if conversion is not None:
        console = Console(highlight=False, markup=False, emoji=False)
        for condition in unmet(blueprint, conversion, chosen):
            console.print(f"unproven  condition of the proof: {condition}", soft_wrap=True)


def write_stock_folder(
    compiled: AnyCompiled,
    folder: Path,
    architecture: Architecture,
    *,
    dtype: DtypeName,
    words: Sequence[str],
) -> None:
    """Export a machine or solver as a stock model, and print its sizes.

    Raises:
        ValueError: a word of the self-test is not fit, or the program does not fit a head.
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
    """Sizes of a stock model, for people."""
    size = shape.num_parameters
    widths = (
        f"{shape.num_layers} layers, width {shape.hidden_size:,}, {shape.num_heads} heads of "
        f"{shape.head_size}, feed-forward {shape.feed_forward_size:,}"
    )
    bytes_of = f"{4 * size / 1e6:,.1f} MB in float32, {2 * size / 1e6:,.1f} MB in bfloat16"
    return [
        f"model     {shape.architecture}: {widths}",
        f"weights   {size:,} ({bytes_of}), {shape.num_nonzero:,} are not zero",
    ]


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
    console = Console(highlight=False, markup=False, emoji=False)
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
