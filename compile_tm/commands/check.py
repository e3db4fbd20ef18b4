"""`sudocot compile check`: compare a compiled model folder with its machine."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.commands.folders import shape_lines
from compile_tm.measure.checks import HeadMargin, Problem

if TYPE_CHECKING:
    from compile_tm.hf.source import FolderSource

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Recompile the machine of a folder and compare it with the folder's model.

    Compares all weights, and runs the words or puzzles of the folder's self-test. For a llama or
    gpt-neox, also checks the distance of every norm from the identity, the margin of every head and
    the residual stream after each layer; otherwise the smallest gap between the top two attention
    scores. If anything differs, the exit code is 1 and the first differences are reported with
    layer, head, position and register.

    Examples:
        sudocot compile check parity-model
        sudocot compile check sorting-model --margins
    """

    folder: Positional[Path]
    """Folder written by `compile`; for a Sudoku solver, of architecture llama or gpt-neox."""
    margins: bool = False
    """Show the smallest margin of every head."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype in which a llama or gpt-neox is run."""


def main(config: Config) -> int:
    """Check the folder and print the result."""
    from compile_tm.stock.source import is_stock_folder

    if not config.folder.is_dir():
        raise ValueError(f"folder: {config.folder} is not a folder")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if is_stock_folder(config.folder):
        return _check_stock(config)
    from compile_tm.hf.folder_check import check_folder

    if config.dtype != "float32":
        raise ValueError(f"dtype: got {config.dtype}, allowed for {config.folder} is float32")
    found = check_folder(config.folder)
    console = Console(highlight=False, markup=False, emoji=False)
    _print_problems(console, found.problems)
    if config.margins:
        console.print(_table(found.margins))
    compiled = found.source.compiled
    console.print(f"machine   {compiled.machine.name}, {compiled.mode}, r = {compiled.bits}")
    console.print(f"model     {_model(found.source)}", soft_wrap=True)
    console.print(f"words     {found.num_words:,}, {found.num_tokens:,} tokens generated")
    if found.margins:
        console.print(f"margin    {min(found.margins, key=lambda item: item.margin)}")
    console.print(f"verdict   {'wrong' if found.problems else 'as compiled'}")
    return 1 if found.problems else 0


def _check_stock(config: Config) -> int:
    import torch

    from compile_tm.stock.check import check_stock_folder

    found = check_stock_folder(config.folder, dtype=getattr(torch, config.dtype))
    console = Console(highlight=False, markup=False, emoji=False)
    _print_problems(console, found.problems)
    if config.margins:
        console.print(_table(found.margins))
    source = found.source
    compiled = source.compiled
    console.print(f"machine   {source.name}, {compiled.mode}, r = {compiled.bits}")
    console.print(shape_lines(source.shape)[0], soft_wrap=True)
    console.print(f"words     {found.num_words:,}, {found.num_tokens:,} tokens predicted")
    if found.margins:
        least = min(found.margins, key=lambda item: item.margin)
        console.print(
            f"norms     within {found.norm_delta:.2g} of the identity (norm {found.norm})"
        )
        console.print(f"stream    within {found.deviation:.2g} of the program's values")
        console.print(f"margin    {least}")
    console.print(f"verdict   {'wrong' if found.problems else 'as compiled'}")
    return 1 if found.problems else 0


def _print_problems(console: Console, problems: tuple[Problem, ...]) -> None:
    for problem in problems[:_MAX_PROBLEMS]:
        console.print(f"wrong     {problem}", soft_wrap=True)
    if len(problems) > _MAX_PROBLEMS:
        console.print(f"wrong     {len(problems) - _MAX_PROBLEMS:,} more")


def _model(source: FolderSource) -> str:
    """Describe positions, attention and formats."""
    conversion, points = source.conversion, source.points
    parts = [f"positions by {source.positions}"]
    if conversion is None:
        return f"{parts[0]}, hardmax"
    parts.append(f"softmax with c {conversion.c:g}, {len(conversion.denoised)} layers denoised")
    for what, to in (("activations", points.activations), ("attention", points.attention)):
        if to is not None:
            parts.append(f"{what} in {to}")
    return ", ".join(parts)


def _table(margins: tuple[HeadMargin, ...]) -> Table:
    """Return a table with a row per layer and a column per head."""
    rows: dict[int, list[HeadMargin]] = {}
    for item in margins:
        rows.setdefault(item.layer, []).append(item)
    table = Table()
    for name in ("layer", *(f"head {n}" for n in range(max(map(len, rows.values()), default=0)))):
        table.add_column(name, justify="right")
    for layer, items in rows.items():
        table.add_row(str(layer), *(f"{item.margin:g}" for item in items))
    return table
