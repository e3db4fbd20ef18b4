"""`sudocot compile check`: is a model folder what it says it is?"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.measure.checks import HeadMargin

if TYPE_CHECKING:
    from compile_tm.hf.source import FolderSource

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile the machine of a folder again, and compare the folder's model with it.

    All weights are compared one by one, the words of the folder's self-test are generated and
    compared with the definitions, and the least gap between the best and the next attention score
    is told. Exit code 1 says that something is wrong, and where: of a wrong token, also the first
    activation that the hardmax transformer does not have.

    Examples:
        sudocot compile check parity-model
        sudocot compile check sorting-model --margins
    """

    folder: Positional[Path]
    """Folder that `compile dfa` or `compile tm` wrote."""
    margins: bool = False
    """Show the least gap of every head."""


def main(config: Config) -> int:
    """Check and print."""
    from compile_tm.hf.folder_check import check_folder

    if not config.folder.is_dir():
        raise ValueError(f"folder: {config.folder} is no folder")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    found = check_folder(config.folder)
    console = Console(highlight=False, markup=False)
    for problem in found.problems[:_MAX_PROBLEMS]:
        console.print(f"wrong     {problem}", soft_wrap=True)
    if len(found.problems) > _MAX_PROBLEMS:
        console.print(f"wrong     {len(found.problems) - _MAX_PROBLEMS:,} more")
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


def _model(source: FolderSource) -> str:
    """Positions, attention and formats."""
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
    """One row a layer, one column a head."""
    rows: dict[int, list[HeadMargin]] = {}
    for item in margins:
        rows.setdefault(item.layer, []).append(item)
    table = Table()
    for name in ("layer", *(f"head {n}" for n in range(max(map(len, rows.values()), default=0)))):
        table.add_column(name, justify="right")
    for layer, items in rows.items():
        table.add_row(str(layer), *(f"{item.margin:g}" for item in items))
    return table
