"""A model folder as a runtime: greedy decoding by `model.generate`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from compile_tm.hf import CompiledTransformerConfig
from compile_tm.hf.source import FolderSource, load_model, read_source


class FolderDecoder:
    """The model of a folder, and what it was compiled from."""

    source: FolderSource

    def __init__(self, folder: Path) -> None:
        """Open a folder.

        Raises:
            ValueError: it is none of a compiled machine.
            OSError: a file is missing.
        """
        self.source = read_source(folder, CompiledTransformerConfig.from_pretrained(folder))
        self.model = load_model(folder)

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[npt.NDArray[np.int32]]:
        """Continue each prompt to a stop token, or to the last position; padded on the left."""
        width, stops = max(map(len, prompts)), sorted(stop)
        ids = torch.full((len(prompts), width), self.source.compiled.stop_ids[0])
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.from_numpy(np.asarray(prompt, dtype=np.int64))
            mask[row, width - len(prompt) :] = 1
        # One more than there are positions, as the last token needs none.
        room = self.source.compiled.program.max_positions + 1
        rows = self.model.generate(
            ids, attention_mask=mask, eos_token_id=stops or None, max_length=room
        )
        sequences = []
        for prompt, row in zip(prompts, rows[:, width:].numpy().astype(np.int32), strict=True):
            ends = np.flatnonzero(np.isin(row, stops))
            new = row[: ends[0] + 1] if len(ends) else row
            sequences.append(np.concatenate([np.asarray(prompt, dtype=np.int32), new]))
        return sequences
