"""Verification of drafts: one packed forward pass over the drafts of many segments.

The logits at position k predict the token at k + 1, so that a pass over a prompt and n draft tokens
verifies n + 1 draft tokens. Greedy decoding generates the draft up to the first mismatch:

    input      <input> ... </input>  a  b  c
    argmax                        a  b  x         accepted: a b, model's token: x
    draft                         a  b  c  d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from eval.engines.contract import EngineStats
from eval.engines.puzzle_run import join
from eval.network.types import SlotCache, Span, TokenNetwork
from solver.vocabulary import Tokens


@dataclass(kw_only=True, slots=True, eq=False)
class DraftedSegment:
    """A segment whose draft is being verified in a slot."""

    key: str
    """Puzzle hash, for messages."""
    slot: int
    """Slot of the KV cache."""
    prompt: Tokens
    """Prompt of the segment."""
    draft: Tokens
    """Draft tokens; a stop token occurs at the end only."""
    num_accepted: int = 0
    """Number of accepted draft tokens."""
    model_token: int | None = None
    """Token of the model after the accepted ones, if the draft was rejected there."""
    num_cached: int = 0
    """Leading tokens of the sequence with valid entries in the KV cache."""

    @property
    def is_verified(self) -> bool:
        """Whether the draft is accepted completely or rejected."""
        return self.model_token is not None or self.num_accepted == len(self.draft)

    @property
    def tokens(self) -> Tokens:
        """Tokens of the model after the prompt that are known so far."""
        accepted = self.draft[: self.num_accepted]
        if self.model_token is None:
            return accepted
        last: Tokens = np.full(1, self.model_token, dtype=self.prompt.dtype)
        return join(accepted, last)

    def span(self, *, max_draft: int, max_tokens: int) -> Span:
        """Return the next input span.

        Args:
            max_draft: Maximum number of draft tokens to verify.
            max_tokens: Maximum length of the span, except that it suffices to verify one token.
        """
        end = len(self.prompt) + min(len(self.draft), self.num_accepted + max_draft) - 1
        end = max(min(end, self.num_cached + max_tokens), len(self.prompt) + self.num_accepted)
        sequence = join(self.prompt, self.draft[: max(end - len(self.prompt), 0)])
        return Span(slot=self.slot, start=self.num_cached, tokens=sequence[self.num_cached :])


def verify_drafts(
    network: TokenNetwork,
    cache: SlotCache,
    batch: Sequence[tuple[DraftedSegment, Span]],
    *,
    stats: EngineStats,
) -> None:
    """Verify parts of drafts in one forward pass.

    Args:
        network: The network.
        cache: KV cache of the network with sufficient capacity.
        batch: Segments that are not verified yet, and the input span of each.
        stats: Counters to update.

    Raises:
        FloatingPointError: A logit at an accepted or the first rejected token is not finite.
    """
    logits = network.prefill(cache, [span for _, span in batch])
    state = torch.stack((logits.argmax(dim=-1), logits.sum(dim=-1).isfinite())).cpu().numpy()
    begin = 0
    for segment, span in batch:
        end = begin + len(span.tokens)
        # Row of the token before the first draft token to verify.
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
            segment.model_token = int(chosen[num_same])
            segment.num_cached = len(segment.prompt) + segment.num_accepted
        stats.num_drafted_tokens += len(chosen)
        stats.num_accepted_tokens += num_same
        begin = end
