"""A network without weights that predicts scripted tokens, for tests and benchmarks of engines.

A script maps the prompt of a segment to its continuation. `solver_script` returns the tokens of
the solver, so that engines can decode millions of tokens without a trained model. Logits are 1 at
the scripted token and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from data.model_format.precision import PrecisionPolicy, get_precision
from eval.engines.drafts import draft_segment
from eval.network.types import SlotCache, Span
from solver.boards import Board
from solver.vocabulary import END_INPUT, END_SUMMARY, PAD, Tokens, Vocabulary

Script = Callable[[Tokens], Tokens]
"""Maps the prompt of a segment to the tokens after it, which `<pad>` tokens follow."""


def solver_script(board: Board, *, num_givens: int, segment_tokens: int | None) -> Script:
    """Return a script that writes the tokens of the solver."""

    def script(prompt: Tokens) -> Tokens:
        return draft_segment(
            board,
            prompt,
            num_givens=num_givens,
            segment_tokens=segment_tokens,
            max_tokens=_MAX_COT_TOKENS,
        )

    return script


_MAX_COT_TOKENS = 1 << 20


class ScriptedCache:
    """Ids of each slot, and the scripted continuation of its prompt."""

    def __init__(self, *, num_slots: int, capacity: int) -> None:
        self.num_slots = num_slots
        self.ids = np.zeros((num_slots, capacity), dtype=np.uint16)
        self.prompt_lengths = [0] * num_slots
        self.answers: list[Tokens] = [np.zeros(0, np.uint8)] * num_slots

    @property
    def capacity(self) -> int:
        """Maximum number of positions of a slot."""
        return self.ids.shape[1]

    def grow(self, capacity: int) -> None:
        """Enlarge all slots and keep their content."""
        self.ids = np.pad(self.ids, ((0, 0), (0, capacity - self.capacity)))


class ScriptedNetwork:
    """A `TokenNetwork` that predicts the tokens of a script by position after the prompt.

    As in any causal network, a prediction depends on the ids of the slot up to its position only.
    Ids after the prompt are ignored, so that a wrong one has no effect on later predictions.
    """

    def __init__(
        self,
        board: Board,
        script: Script,
        *,
        max_positions: int,
        precision: PrecisionPolicy | None = None,
    ) -> None:
        """Initialize the network.

        Args:
            board: Board of the puzzles.
            script: Predictions.
            max_positions: Context length.
            precision: Precision policy to report; fp32 by default.
        """
        self.precision = get_precision("fp32") if precision is None else precision
        self.device = torch.device("cpu")
        self.num_ids = Vocabulary(board).size
        self.max_positions = max_positions
        self._dtype = Vocabulary(board).dtype
        self._script = script

    @property
    def supports_mixed_batches(self) -> bool:
        """See `eval.network.types.TokenNetwork`."""
        return True

    def new_cache(self, *, num_slots: int, capacity: int) -> ScriptedCache:
        """Allocate slots."""
        return ScriptedCache(num_slots=num_slots, capacity=min(capacity, self.max_positions))

    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """See `eval.network.types.TokenNetwork`."""
        assert isinstance(cache, ScriptedCache)
        chosen = []
        for span in spans:
            cache.ids[span.slot, span.start : span.end] = span.tokens
            if span.start == 0:
                cache.prompt_lengths[span.slot] = 0
            self._find_prompt(cache, span.slot, end=span.end)
            first = span.end - 1 if is_last_only else span.start
            chosen.append(self._predict(cache, span.slot, first=first, end=span.end))
        return self._one_hot(chosen)

    def decode_step(
        self,
        cache: SlotCache,
        tokens: Tensor,
        positions: Tensor,
        *,
        slots: Tensor | None = None,
        max_seq_len: int,
        logits_indices: Tensor | None = None,
    ) -> Tensor:
        """See `eval.network.types.TokenNetwork`."""
        assert isinstance(cache, ScriptedCache)
        del max_seq_len
        rows = range(cache.num_slots) if slots is None else slots.tolist()
        chosen = []
        for slot, token, position in zip(rows, tokens.tolist(), positions.tolist(), strict=True):
            cache.ids[slot, position] = token
            if cache.prompt_lengths[slot] > position:
                cache.prompt_lengths[slot] = 0
            self._find_prompt(cache, slot, end=position + 1)
            chosen.append(self._predict(cache, slot, first=position, end=position + 1))
        return self._one_hot(
            chosen if logits_indices is None else [chosen[row] for row in logits_indices.tolist()]
        )

    def _find_prompt(self, cache: ScriptedCache, slot: int, *, end: int) -> None:
        """Evaluate the script once the prompt of a slot is complete."""
        if cache.prompt_lengths[slot]:
            return
        closing = np.flatnonzero(np.isin(cache.ids[slot, :end], (END_INPUT, END_SUMMARY)))
        if len(closing):
            length = int(closing[0]) + 1
            cache.prompt_lengths[slot] = length
            prompt = cast("Tokens", cache.ids[slot, :length].astype(self._dtype))
            cache.answers[slot] = self._script(prompt)

    def _predict(self, cache: ScriptedCache, slot: int, *, first: int, end: int) -> Tokens:
        """Return the tokens after the positions `first` to `end`."""
        answer = cache.answers[slot]
        indices = np.arange(first, end) - (cache.prompt_lengths[slot] - 1)
        known = (indices >= 0) & (indices < len(answer)) & (cache.prompt_lengths[slot] > 0)
        chosen: Tokens = np.full(len(indices), PAD, dtype=self._dtype)
        chosen[known] = answer[indices[known]]
        return chosen

    def _one_hot(self, chosen: Sequence[Tokens]) -> Tensor:
        ids = torch.from_numpy(np.concatenate(chosen).astype(np.int64))
        return torch.nn.functional.one_hot(ids, self.num_ids).float()
