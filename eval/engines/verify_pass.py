"""Checking drafts: one packed pass of the network over the drafts of many segments.

The logits after position k of a sequence tell the model's token at k + 1. So a pass over a prompt
and n tokens of a draft checks n + 1 tokens of it, and up to the first that differs, the draft is
what greedy decoding writes:

    fed        <input> ... </input>  a  b  c
    model                         a  b  x         accepted: a b, own token: x
    draft                         a  b  c  d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from eval.engines.contract import EngineStats
from eval.network.types import SlotCache, Span, TokenNetwork
from solver.vocabulary import Tokens


def join(first: Tokens, second: Tokens) -> Tokens:
    """One sequence after another."""
    return cast("Tokens", np.concatenate((first, second)))


@dataclass(kw_only=True, slots=True, eq=False)
class DraftedSegment:
    """A segment whose draft is being checked, in a slot of its own."""

    key: str
    """Puzzle, for messages."""
    slot: int
    """Slot whose cache holds what was checked."""
    prompt: Tokens
    """Prompt of the segment."""
    draft: Tokens
    """What may follow it; a stop token comes last or not at all."""
    num_accepted: int = 0
    """Leading tokens of the draft that are the model's own."""
    own_token: int | None = None
    """The model's token after these, where the draft has another one."""
    num_cached: int = 0
    """Leading tokens of the sequence that are in the cache and right."""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing more to check."""
        return self.own_token is not None or self.num_accepted == len(self.draft)

    @property
    def tokens(self) -> Tokens:
        """What the model writes after the prompt, as far as it is known."""
        accepted = self.draft[: self.num_accepted]
        if self.own_token is None:
            return accepted
        own: Tokens = np.full(1, self.own_token, dtype=self.prompt.dtype)
        return join(accepted, own)

    def span(self, *, max_draft: int, max_fed: int) -> Span:
        """Return what to feed next.

        Args:
            max_draft: tokens of the draft to check at most.
            max_fed: tokens to feed at most, but always enough to check one.
        """
        end = len(self.prompt) + min(len(self.draft), self.num_accepted + max_draft) - 1
        end = max(min(end, self.num_cached + max_fed), len(self.prompt) + self.num_accepted)
        sequence = join(self.prompt, self.draft[: max(end - len(self.prompt), 0)])
        return Span(slot=self.slot, start=self.num_cached, tokens=sequence[self.num_cached :])


def check_drafts(
    network: TokenNetwork,
    cache: SlotCache,
    picked: Sequence[tuple[DraftedSegment, Span]],
    *,
    stats: EngineStats,
) -> None:
    """Check parts of drafts, in one forward pass.

    Args:
        network: the network.
        cache: a cache of it, with room for the segments.
        picked: segments that are not settled, and what to feed of each.
        stats: gets what was done.

    Raises:
        FloatingPointError: a logit that decides on a token of the model is not finite.
    """
    logits = network.prefill(cache, [span for _, span in picked])
    state = torch.stack((logits.argmax(dim=-1), logits.sum(dim=-1).isfinite())).cpu().numpy()
    begin = 0
    for segment, span in picked:
        end = begin + len(span.tokens)
        # The token before the first that is checked, which is the last of the prompt at first.
        first = end - (span.end - len(segment.prompt) - segment.num_accepted + 1)
        chosen, is_finite = state[:, first:end]
        proposed = segment.draft[segment.num_accepted :][: len(chosen)]
        differs = chosen != proposed
        num_same = int(differs.argmax()) if differs.any() else len(chosen)
        if not is_finite[: num_same + 1].all():
            raise FloatingPointError(f"puzzle {segment.key}: the model's logits are not finite")
        segment.num_accepted += num_same
        segment.num_cached = span.end
        if num_same < len(chosen):
            segment.own_token = int(chosen[num_same])
            segment.num_cached = len(segment.prompt) + segment.num_accepted
        stats.num_drafted_tokens += len(chosen)
        stats.num_accepted_tokens += num_same
        begin = end
