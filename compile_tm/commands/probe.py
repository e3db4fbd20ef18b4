"""`sudocot compile probe`: write register values at layers of a Llama or GPT-NeoX model."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

if TYPE_CHECKING:
    from compile_tm.stock.source import StockSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write register values of a compiled llama or gpt-neox to a table with one row per token.

    The values are read from the residual stream of the model. Columns are `sequence`, `position`,
    `id`, and `NAME@LAYER` for each register and layer; layer 0 is the embedding, as in
    `hidden_states` of transformers. `registers.json` in the folder lists names, kinds and meanings.

    Examples:
        sudocot compile probe sorting-model --words cab --registers "sought 1" --out sought.npz
        sudocot compile probe solver-model --registers candidates hidden --out c.npz
        sudocot compile probe solver-model --ids ids.jsonl --layers 3 4 --out rows.parquet
    """

    folder: Positional[Path]
    """Folder written by `compile` with architecture llama or gpt-neox."""
    out: Path
    """File to write, .npz or .parquet."""
    words: tuple[str, ...] = ()
    """Words or puzzles to run (default: the folder's self-test)."""
    ids: Path | None = None
    """File with a JSON list of token ids per line, instead of words."""
    registers: tuple[str, ...] = ()
    """Names of registers, or `hidden` for the residual stream (default: all registers)."""
    layers: tuple[Annotated[int, Ge(0), Le(10_000)], ...] = ()
    """Layers (default: for each register, the first layer after which it is valid)."""

    def __post_init__(self) -> None:
        if self.words and self.ids is not None:
            raise ValueError("ids: not allowed together with words")


def main(config: Config) -> int:
    """Run the sequences and write the table."""
    from compile_tm.stock.observe import load_stock_model
    from compile_tm.stock.probe import SUFFIXES, choose_probes, probe_sequences, write_columns
    from compile_tm.stock.source import is_stock_folder, read_source

    if config.out.suffix not in SUFFIXES:
        raise ValueError(f"out: got {config.out}, allowed are {' and '.join(SUFFIXES)}")
    if config.out.exists():
        raise FileExistsError(f"{config.out} exists")
    if not is_stock_folder(config.folder):
        raise ValueError(
            f"folder: got {config.folder}, allowed are folders written by `sudocot compile` with "
            "architecture llama or gpt-neox"
        )
    logging.getLogger("transformers").setLevel(logging.ERROR)
    source = read_source(config.folder)
    probes = choose_probes(source, config.registers, config.layers)
    sequences = _sequences(config, source)
    model = load_stock_model(config.folder)
    columns = probe_sequences(model, source, sequences, probes)
    write_columns(columns, config.out)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"tokens    {len(columns['id']):,} of {len(sequences):,} sequences")
    console.print(f"columns   {', '.join(probe.column for probe in probes)}", soft_wrap=True)
    console.print(f"file      {config.out}", soft_wrap=True)
    return 0


def _sequences(config: Config, source: StockSource) -> list[list[int]]:
    """Return the ids of the sequences to run, without the last token, which is not an input."""
    from compile_tm.hf.self_test import read_cases
    from compile_tm.stock.self_test import expected_case

    if config.ids is not None:
        return _read_ids(config.ids)
    cases = [expected_case(source.compiled, word, max_tokens=None) for word in config.words]
    return [
        list(ids[:-1]) for case in cases or read_cases(config.folder) for ids, _ in case.segments
    ]


def _read_ids(path: Path) -> list[list[int]]:
    """Read a file with a JSON list of ids per line.

    Raises:
        ValueError: a line is malformed; the message names file and line.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            ids = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise ValueError(f"{path}: line {number}: allowed is a list of token ids")
        found.append(ids)
    if not found:
        raise ValueError(f"{path}: contains no sequences")
    return found
