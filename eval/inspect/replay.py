"""Where a model leaves the solver's trace, and by what margin.

Greedy decoding writes the solver's tokens up to the first position at which, after the solver's
tokens, another one is most likely. So forward passes over the trace find it, segment by segment,
and nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from eval.engines.contract import Request
from eval.engines.drafts import draft_segment
from eval.engines.puzzle_run import input_prompt
from eval.network.types import Span, TokenNetwork
from solver.mrv.tracer import DEFAULT_MAX_TOKENS
from solver.vocabulary import END_SUMMARY, SUMMARY, Tokens

_PASS_TOKENS = 1024

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Preference:
    """What a model makes of one position."""

    token: int
    """Most likely id."""
    runner_up: int
    """Next likely id."""
    margin: float
    """Logit of the first minus that of the second."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Deviation:
    """The first token of a model that is not the solver's."""

    segment: int
    """Segment, from 0."""
    position: int
    """Token after its prompt, from 0."""
    before: Tokens
    """Prompt and the tokens up to there."""
    solver_token: int
    """What the solver writes."""
    preference: Preference
    """What the model writes."""
    gap: float
    """Logit of the model's token minus that of the solver's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Replay:
    """A model along the solver's trace of a puzzle."""

    num_segments: int
    """Segments looked at."""
    num_followed: int
    """Tokens that are the solver's, up to the deviation or the end."""
    least_margin: float | None
    """Smallest margin of these."""
    deviation: Deviation | None
    """Where the model leaves the trace; None if it never does."""
    is_cut: bool
    """Whether the positions of the model ran out before the trace did."""


def replay(network: TokenNetwork, request: Request, *, segment_tokens: int | None) -> Replay:
    """Follow a model along the solver's trace until it leaves it.

    Args:
        network: The model.
        request: The puzzle; its caps are not looked at.
        segment_tokens: Trace tokens after which a segment ends; None for CoT.

    Raises:
        ValueError: givens that clash, or a prompt that is longer than the model's positions.
    """
    num_segments = num_followed = 0
    least_margin, deviation, is_cut = float("inf"), None, False
    for prompt, answer in _solver_segments(request, segment_tokens=segment_tokens):
        room = network.max_positions - len(prompt)
        if room < 1:
            raise ValueError(f"puzzle: a prompt has {len(prompt)} tokens, the model takes less")
        num, least, preferred = _follow(network, prompt, answer[:room])
        num_segments += 1
        num_followed += num
        least_margin = min(least_margin, least)
        if preferred is not None:
            token, logits = int(answer[num]), preferred
            deviation = Deviation(
                segment=num_segments - 1,
                position=num,
                before=_join(prompt, answer[:num]),
                solver_token=token,
                preference=preference_of(logits),
                gap=float(logits.max() - logits[token]),
            )
        is_cut = len(answer) > room
        if deviation is not None or is_cut:
            break
    return Replay(
        num_segments=num_segments,
        num_followed=num_followed,
        least_margin=least_margin if num_followed else None,
        deviation=deviation,
        is_cut=is_cut and deviation is None,
    )


def preference_of(logits: Logits) -> Preference:
    """Return the two most likely ids (n,); of equal logits the smaller id comes first."""
    token, runner_up = np.argsort(-logits, kind="stable")[:2].tolist()
    return Preference(
        token=token, runner_up=runner_up, margin=float(logits[token] - logits[runner_up])
    )


def logits_after(network: TokenNetwork, ids: Tokens, *, first: int) -> Iterator[Logits]:
    """Yield the logits after the positions from `first` on, float32 (n, num_ids), in pieces."""
    cache = network.new_cache(num_slots=1, capacity=len(ids))
    for start in range(0, len(ids), _PASS_TOKENS):
        span = Span(slot=0, start=start, tokens=ids[start : start + _PASS_TOKENS])
        logits: Logits = network.prefill(cache, [span]).cpu().numpy()
        if span.end > first:
            yield logits[max(first - start, 0) :]


def _follow(
    network: TokenNetwork, prompt: Tokens, answer: Tokens
) -> tuple[int, float, Logits | None]:
    """Check an answer; returns its right tokens, their least margin, the logits at a wrong one."""
    num, least = 0, float("inf")
    ids = _join(prompt, answer)[:-1]
    for logits in logits_after(network, ids, first=len(prompt) - 1):
        wrong = np.flatnonzero(logits.argmax(axis=1) != answer[num : num + len(logits)])
        num_right = int(wrong[0]) if len(wrong) else len(logits)
        if num_right:
            top = np.partition(logits[:num_right], -2, axis=1)[:, -2:]
            least = min(least, float((top[:, 1] - top[:, 0]).min()))
        num += num_right
        if len(wrong):
            return num, least, logits[num_right]
    return num, least, None


def _solver_segments(
    request: Request, *, segment_tokens: int | None
) -> Iterator[tuple[Tokens, Tokens]]:
    """Yield prompt and answer of each segment that the solver writes."""
    prompt: Tokens | None = input_prompt(request)
    while prompt is not None:
        answer = draft_segment(
            request.board,
            prompt,
            num_givens=int(np.count_nonzero(request.givens)),
            segment_tokens=segment_tokens,
            max_tokens=DEFAULT_MAX_TOKENS,
        )
        if not len(answer):
            raise ValueError("puzzle: its givens clash, allowed is each digit once in a unit")
        yield prompt, answer
        is_over = answer[-1] != END_SUMMARY
        prompt = None if is_over else answer[np.flatnonzero(answer == SUMMARY)[-1] :]


def _join(first: Tokens, second: Tokens) -> Tokens:
    return cast("Tokens", np.concatenate((first, second)))
