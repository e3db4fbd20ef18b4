"""Greedy decoding of a single puzzle, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor

from eval.engines.puzzle_run import PuzzleRun
from eval.network.types import Span, TokenNetwork
from solver.vocabulary import DECODING_STOPS, Tokens


class TokenSequence(Protocol):
    """A model that decodes one sequence incrementally."""

    num_ids: int
    """Width of the logits."""
    max_positions: int
    """Context length in tokens."""

    def begin(self, prompt: Tokens) -> Tensor:
        """Start a new sequence and return the logits (1, num_ids) of its next token."""

    def append(self, token: int) -> Tensor:
        """Append a token and return the logits (1, num_ids) of the next one."""


class SlotSequence:
    """A `TokenSequence` over a `TokenNetwork`, in a KV cache with one slot."""

    def __init__(self, network: TokenNetwork) -> None:
        self.num_ids, self.max_positions = network.num_ids, network.max_positions
        self._network, self._length = network, 0
        # On a CPU, pages that are never written take no memory.
        self._cache = network.new_cache(num_slots=1, capacity=network.max_positions)

    def begin(self, prompt: Tokens) -> Tensor:
        """See `TokenSequence`."""
        self._length = len(prompt)
        span = Span(slot=0, start=0, tokens=prompt)
        return self._network.prefill(self._cache, [span], is_last_only=True)

    def append(self, token: int) -> Tensor:
        """See `TokenSequence`."""
        tokens, positions = torch.tensor([[token], [self._length]], device=self._network.device)
        self._length += 1
        return self._network.decode_step(self._cache, tokens, positions, max_seq_len=self._length)


def stream_tokens(model: TokenSequence, run: PuzzleRun) -> Iterator[int]:
    """Decode a puzzle greedily and yield its tokens; `run` holds the result afterward.

    When a token is yielded, `run.prompt` is the prompt of its segment.

    Raises:
        FloatingPointError: A logit is not finite.
    """
    while run.finish_reason is None:
        tokens = list[int]()
        logits = model.begin(run.prompt)
        while True:
            if not logits.isfinite().all():
                raise FloatingPointError(
                    f"puzzle {run.request.key}: the model's logits are not finite"
                )
            tokens.append(int(logits[0].argmax()))
            yield tokens[-1]
            if tokens[-1] in DECODING_STOPS or len(tokens) == run.token_budget:
                break
            logits = model.append(tokens[-1])
        run.end_segment(cast("Tokens", np.array(tokens)))
