"""Model folders as runtimes: greedy decoding by `model.generate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from compile_tm.constructions.compiled import Compiled
from compile_tm.hf.source import FolderSource, load_model, model_snapshots, read_config, read_source
from compile_tm.program.compiled import CompiledProgram, Decoder
from compile_tm.program.registers import Flag, Register
from compile_tm.runtime.trace import Activations, LayerState
from compile_tm.runtime.transformer import Part
from compile_tm.stock.blocks import FIRST_NAME, FOUND_NAME
from compile_tm.stock.observe import load_stock_model, observe
from compile_tm.stock.source import StockSource, is_stock_folder
from compile_tm.stock.source import read_source as read_stock_source

Ids = npt.NDArray[np.int32]


class FolderDecoder(Decoder, Protocol):
    """The model of a folder and its compiled program."""

    @property
    def compiled(self) -> CompiledProgram:
        """The machine or solver, compiled again."""

    @property
    def wires(self) -> tuple[Register | Flag, ...]:
        """Registers and flags of the residual stream."""

    def activations(self, ids: Sequence[int]) -> Activations:
        """Return the residual stream after each layer, and the greedy next tokens."""


def open_decoder(folder: Path) -> FolderDecoder:
    """Open a folder of a compiled machine, or of a solver compiled to a Llama or GPT-NeoX.

    Raises:
        ValueError: the folder holds no such model, or a file is malformed.
        OSError: a file is missing.
    """
    return StockDecoder(folder) if is_stock_folder(folder) else CompiledDecoder(folder)


class StockDecoder:
    """A `FolderDecoder` of a Llama or GPT-NeoX."""

    source: StockSource

    def __init__(self, folder: Path) -> None:
        self.source = read_stock_source(folder)
        self.model = load_stock_model(folder)

    @property
    def compiled(self) -> CompiledProgram:
        """See `FolderDecoder`."""
        return self.source.compiled

    @property
    def wires(self) -> tuple[Register | Flag, ...]:
        """See `FolderDecoder`."""
        program = self.source.program
        own = Flag((program.first,), FIRST_NAME), Flag((program.found,), FOUND_NAME)
        return (*self.compiled.program.wires, *own)

    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[Ids]:
        """See `FolderDecoder`."""
        return generate(
            self.model, prompts, stop=stop, num_positions=self.source.program.max_positions
        )

    def activations(self, ids: Sequence[int]) -> Activations:
        """See `FolderDecoder`."""
        seen, program = observe(self.model, self.source, ids), self.source.program
        layers = [LayerState("", "embedding", seen.embedded)]
        for number, (layer, values) in enumerate(zip(program.layers, seen.layers, strict=True), 1):
            layers.append(LayerState(str(number), layer.name, values.after))
        return Activations(layers, seen.predicted)


class CompiledDecoder:
    """A `FolderDecoder` of the compiled architecture."""

    source: FolderSource

    def __init__(self, folder: Path) -> None:
        self.source = read_source(folder, read_config(folder))
        self.model = load_model(folder)

    @property
    def compiled(self) -> Compiled:
        """See `FolderDecoder`."""
        return self.source.compiled

    @property
    def wires(self) -> tuple[Register | Flag, ...]:
        """See `FolderDecoder`."""
        return self.source.blueprint.wires

    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[Ids]:
        """See `FolderDecoder`."""
        room = self.compiled.program.max_positions
        return generate(self.model, prompts, stop=stop, num_positions=room)

    def activations(self, ids: Sequence[int]) -> Activations:
        """See `FolderDecoder`."""
        snapshots, logits = model_snapshots(self.model, self.source, ids)
        layers = [LayerState("", "embedding", snapshots[0].stream[0].numpy())]
        for number, (layer, part, stream) in enumerate(snapshots[1:], 1):
            name = self.source.blueprint.layer_name(layer)
            if part is Part.DENOISING:
                name = f"heads of {name}, denoised"
            layers.append(LayerState(str(number), name, stream[0].numpy()))
        return Activations(layers, logits.argmax(dim=-1).numpy())


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[npt.NDArray[np.integer]],
    *,
    stop: Collection[int],
    num_positions: int,
) -> list[Ids]:
    """Continue each prompt (n,) greedily to a stop token or the last position.

    Prompts of the same length form a batch, without padding: `max_length` of transformers counts
    padding tokens, so that rows of different lengths could exceed the last position.
    """
    stops = sorted(stop)
    found: dict[int, Ids] = {}
    for length, rows in by_length(prompts):
        ids = torch.from_numpy(np.stack([prompts[row] for row in rows]).astype(np.int64))
        sequences = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            eos_token_id=stops or None,
            # The last token is not read, so it needs no position.
            max_length=num_positions + 1,
        )
        for row, sequence in zip(rows, sequences.numpy().astype(np.int32), strict=True):
            ends = np.flatnonzero(np.isin(sequence[length:], stops))
            found[row] = sequence[: length + ends[0] + 1] if len(ends) else sequence
    return [found[row] for row in range(len(prompts))]


def by_length(prompts: Sequence[Sized]) -> Iterator[tuple[int, list[int]]]:
    """Yield the lengths in ascending order, with the indices of the prompts of each length."""
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for row, prompt in enumerate(prompts):
        groups[len(prompt)].append(row)
    yield from sorted(groups.items())
