"""Values of registers in the residual stream of a stock model, as a table with a row per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compile_tm.program.register_file import RegisterEntry
from compile_tm.stock.observe import Observation, observe
from compile_tm.stock.registers import stock_registers
from compile_tm.stock.source import StockSource
from data.runtime.files import staged_file

HIDDEN = "hidden"
"""Name for the whole residual stream."""
SUFFIXES = (".npz", ".parquet")


@dataclass(frozen=True, slots=True)
class Probe:
    """A register after a layer."""

    name: str
    layer: int
    """Layer of the model; 0 is the embedding."""
    coordinates: tuple[int, ...] | slice

    @property
    def column(self) -> str:
        """Name of its column."""
        return f"{self.name}@{self.layer}"


def choose_probes(source: StockSource, names: Sequence[str], layers: Sequence[int]) -> list[Probe]:
    """Return probes of named registers after given layers.

    Args:
        source: The compiled program and its stock model.
        names: Names, or `hidden` for the whole stream; empty for all registers.
        layers: Layers; empty for the first layer of each register, and all of the whole stream.

    Raises:
        ValueError: no such register or layer.
    """
    depth = len(source.program.layers)
    for layer in layers:
        if not 0 <= layer <= depth:
            raise ValueError(f"layers: got {layer}, allowed are 0 to {depth}")
    registers: dict[str, list[RegisterEntry]] = {}
    for each in stock_registers(source):
        registers.setdefault(each.name, []).append(each)
    unknown = set(names) - registers.keys() - {HIDDEN}
    if unknown:
        raise ValueError(
            f"registers: got {min(unknown)!r}, allowed are {HIDDEN}, {', '.join(sorted(registers))}"
        )
    probes: dict[str, Probe] = {}
    for name in names or registers:
        if name == HIDDEN:
            found = [Probe(name, n, slice(None)) for n in layers or range(depth + 1)]
        else:
            found = [
                Probe(name, layer, each.coordinates)
                for each in registers[name]
                for layer in layers or (each.first,)
            ]
        probes |= {probe.column: probe for probe in found}
    return list(probes.values())


def probe_sequences(
    model: Any, source: StockSource, sequences: Sequence[Sequence[int]], probes: Sequence[Probe]
) -> dict[str, npt.NDArray[Any]]:
    """Run sequences and return columns with one row for each token.

    Returns:
        `sequence`, `position` and `id`, each (n,), and for each probe its values (n, width).

    Raises:
        ValueError: a sequence is empty, too long, or has an id outside the vocabulary.
    """
    parts = [_rows(model, source, n, ids, probes) for n, ids in enumerate(sequences)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _rows(
    model: Any, source: StockSource, number: int, ids: Sequence[int], probes: Sequence[Probe]
) -> dict[str, npt.NDArray[Any]]:
    room, vocab_size = source.program.max_positions, source.shape.vocab_size
    if not 1 <= len(ids) <= room:
        raise ValueError(f"sequence {number}: got {len(ids)} tokens, allowed are 1 to {room}")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise ValueError(f"sequence {number}: allowed are ids 0 to {vocab_size - 1}")
    streams = list(_streams(observe(model, source, ids)))
    columns: dict[str, npt.NDArray[Any]] = {
        "sequence": np.full(len(ids), number),
        "position": np.arange(len(ids)),
        "id": np.asarray(ids, dtype=np.int64),
    }
    for probe in probes:
        where = probe.coordinates
        index = where if isinstance(where, slice) else list(where)
        columns[probe.column] = streams[probe.layer][:, index]
    return columns


def _streams(seen: Observation) -> Iterator[npt.NDArray[np.float32]]:
    yield seen.embedded
    yield from (layer.after for layer in seen.layers)


def write_columns(columns: Mapping[str, npt.NDArray[Any]], path: Path) -> None:
    """Write columns as `.npz`, or as `.parquet` with lists for values.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"out: got {path}, allowed are {' and '.join(SUFFIXES)}")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with staged_file(path) as staged:
        if path.suffix == ".npz":
            with staged.open("wb") as file:
                np.savez_compressed(file, **columns)  # type: ignore[arg-type]
            return
        arrays = [
            pa.array(values if values.ndim == 1 else list(values)) for values in columns.values()
        ]
        pq.write_table(pa.table(arrays, names=list(columns)), staged)
