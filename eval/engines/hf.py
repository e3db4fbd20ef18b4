"""The `hf` engine: `model.generate` of transformers with static batches, as a baseline.

Batches are padded on the left. The attention mask hides the padding, and transformers derives the
position ids from it. A batch runs until its longest row has finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from data.model_format.precision import PrecisionPolicy
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun, join
from eval.engines.run_queue import begin_run
from eval.network.model_folder import ModelFolder
from eval.network.transformers_model import load_model
from solver.vocabulary import DECODING_STOPS, PAD, Tokens


class HfEngine:
    """Engine that runs a model of transformers.

    `bf16` is autocast over fp32 weights, as in training. The KV cache is fp32 then; keys and values
    are rounded when attention reads them, which gives the same numbers as a bf16 cache.
    """

    name = "hf"

    def __init__(
        self,
        folder: ModelFolder,
        *,
        precision: PrecisionPolicy,
        device: torch.device,
        num_slots: int,
    ) -> None:
        """Load the model.

        Args:
            folder: The model.
            precision: Number formats.
            device: Device of the model.
            num_slots: Batch size.
        """
        self.precision = precision
        self.device = str(device)
        self.stats = EngineStats()
        self._num_slots, self._device = num_slots, device
        self._num_ids, self._max_positions = folder.vocabulary.size, folder.max_positions
        self._model = load_model(folder)
        nn.Module.to(self._model, device)

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> HfEngine:
        """See `eval.engines.factory`."""
        return cls(
            folder,
            precision=options.precision,
            device=options.local_device,
            num_slots=options.num_slots,
        )

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        waiting = iter(requests)
        runs: list[PuzzleRun] = []
        while True:
            while len(runs) < self._num_slots and (request := next(waiting, None)) is not None:
                runs.append(
                    begin_run(request, num_ids=self._num_ids, max_positions=self._max_positions)
                )
            if not runs:
                return
            for run, tokens in zip(runs, self._generate(runs), strict=True):
                run.end_segment(tokens)
                if run.finish_reason is not None:
                    self.stats.num_new_tokens += run.num_new_tokens
                    yield run.result()
            runs = [run for run in runs if run.finish_reason is None]

    def close(self) -> None:
        """See `eval.engines.contract.Engine`."""

    def _generate(self, runs: Sequence[PuzzleRun]) -> list[Tokens]:
        """Generate the current segment of each run.

        A batch stops when its longest sequence reaches the context length; the unfinished rows
        continue as a new batch.
        """
        written: list[Tokens] = [run.prompt[:0] for run in runs]
        active = list(range(len(runs)))
        while active:
            sequences = [join(runs[row].prompt, written[row]) for row in active]
            missing = max(runs[row].token_budget - len(written[row]) for row in active)
            room = self._max_positions - max(map(len, sequences))
            keys = [runs[row].request.key for row in active]
            new = self._generate_batch(sequences, min(missing, room), keys)
            finished = set()
            for row, tokens in zip(active, new, strict=True):
                written[row] = _cut(join(written[row], tokens)[: runs[row].token_budget])
                is_stopped = int(written[row][-1]) in DECODING_STOPS
                if is_stopped or len(written[row]) == runs[row].token_budget:
                    finished.add(row)
            active = [row for row in active if row not in finished]
        return written

    @torch.inference_mode()
    def _generate_batch(
        self, sequences: Sequence[Tokens], num_new_tokens: int, keys: Sequence[str]
    ) -> Tokens:
        """Continue sequences; returns ids (B, T) with T at most `num_new_tokens`."""
        ids, mask = pad_left(sequences, PAD, self._device)
        watch = _BoardIds(self._num_ids, len(sequences), self._device)
        is_bf16 = self.precision.activations == "bf16"
        generate = cast("Any", self._model).generate
        with torch.autocast(self._device.type, torch.bfloat16, enabled=is_bf16):
            output: Tensor = generate(
                ids,
                attention_mask=mask,
                generation_config=GenerationConfig(
                    max_new_tokens=num_new_tokens,
                    do_sample=False,
                    eos_token_id=list(DECODING_STOPS),
                    pad_token_id=PAD,
                ),
                logits_processor=LogitsProcessorList([watch]),
            )
        is_finite = watch.is_finite.cpu().numpy()
        if not is_finite.all():
            key = keys[int(is_finite.argmin())]
            raise FloatingPointError(f"puzzle {key}: the model's logits are not finite")
        self.stats.num_forward_passes += output.shape[1] - ids.shape[1]
        self.stats.num_prompt_tokens += int(mask.sum())
        rows = output[:, ids.shape[1] :].cpu().numpy().astype(sequences[0].dtype)
        return cast("Tokens", rows)


class _BoardIds(LogitsProcessor):
    """Masks logits outside the board's vocabulary, and records rows with non-finite logits."""

    def __init__(self, num_ids: int, num_rows: int, device: torch.device) -> None:
        self._num_ids = num_ids
        self.is_finite = torch.ones(num_rows, dtype=torch.bool, device=device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        del input_ids
        self.is_finite &= scores[:, : self._num_ids].sum(dim=-1).isfinite()
        scores[:, self._num_ids :] = -torch.inf
        return scores


def pad_left(
    sequences: Sequence[Sequence[int] | Tokens], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return ids and attention mask of a batch, int64 (B, longest sequence)."""
    width = max(map(len, sequences))
    ids = np.full((len(sequences), width), pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(sequences):
        ids[row, width - len(tokens) :] = tokens
        mask[row, width - len(tokens) :] = 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


def _cut(ids: Tokens) -> Tokens:
    """Return the ids up to the first stop token; the rest is padding."""
    stops = np.flatnonzero(np.isin(ids, DECODING_STOPS))
    return ids[: int(stops[0]) + 1] if len(stops) else ids
