"""First deviation of a model from the trace of the solver, and its logit margin.

Greedy decoding follows the solver up to the first position where the argmax differs from the
solver's token. Teacher-forced forward passes over the trace find this position without decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval.engines.contract import Request
from eval.engines.drafts import draft_segment
from eval.engines.puzzle_run import input_prompt, join
from eval.network.types import Span, TokenNetwork
from solver.mrv.tracer import DEFAULT_MAX_TOKENS
from solver.vocabulary import END_SUMMARY, SUMMARY, Tokens, suffix_from_last

_PASS_TOKENS = 1024

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Preference:
    """The two most likely ids of a model at a position."""

    token: int
    """Most likely id."""
    runner_up: int
    """Second most likely id."""
    margin: float
    """Difference of their logits."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Deviation:
    """The first token of a model that differs from the solver's."""

    segment: int
    """Index of the segment."""
    position: int
    """Index of the generated token in the segment."""
    before: Tokens
    """Prompt and the tokens before the position."""
    solver_token: int
    """Token of the solver."""
    preference: Preference
    """Most likely ids of the model."""
    gap: float
    """Logit of the model's token minus that of the solver's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Replay:
    """Comparison of a model with the trace of the solver."""

    num_segments: int
    """Number of segments compared."""
    num_followed: int
    """Number of equal tokens before the deviation or the end."""
    least_margin: float | None
    """Smallest logit margin of these tokens."""
    deviation: Deviation | None
    """First deviation; None if there is none."""
    is_cut: bool
    """Whether the trace exceeds the context length of the model."""


def replay(network: TokenNetwork, request: Request, *, segment_tokens: int | None) -> Replay:
    """Compare a model with the trace of the solver up to the first deviation.

    Args:
        network: The model.
        request: The puzzle; its token limits are ignored.
        segment_tokens: Trace tokens after which a segment ends; None for CoT.

    Raises:
        ValueError: The givens conflict, or a prompt exceeds the context length.
    """
    num_segments = num_followed = 0
    least_margin, deviation, is_cut = float("inf"), None, False
    for prompt, answer in _solver_segments(request, segment_tokens=segment_tokens):
        room = network.max_positions - len(prompt)
        if room < 1:
            raise ValueError(
                f"puzzle: a prompt has {len(prompt)} tokens, the model's context length is "
                f"{network.max_positions}"
            )
        num, least, preferred = _follow(network, prompt, answer[:room])
        num_segments += 1
        num_followed += num
        least_margin = min(least_margin, least)
        if preferred is not None:
            token, logits = int(answer[num]), preferred
            deviation = Deviation(
                segment=num_segments - 1,
                position=num,
                before=join(prompt, answer[:num]),
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
    """Return the two most likely ids of logits (num_ids,); ties go to the smaller id."""
    token, runner_up = np.argsort(-logits, kind="stable")[:2].tolist()
    return Preference(
        token=token, runner_up=runner_up, margin=float(logits[token] - logits[runner_up])
    )


def logits_after(network: TokenNetwork, ids: Tokens, *, first: int) -> Iterator[Logits]:
    """Yield the logits at the positions from `first` on in chunks, float32 (n, num_ids)."""
    cache = network.new_cache(num_slots=1, capacity=len(ids))
    for start in range(0, len(ids), _PASS_TOKENS):
        span = Span(slot=0, start=start, tokens=ids[start : start + _PASS_TOKENS])
        logits: Logits = network.prefill(cache, [span]).cpu().numpy()
        if span.end > first:
            yield logits[max(first - start, 0) :]


def _follow(
    network: TokenNetwork, prompt: Tokens, answer: Tokens
) -> tuple[int, float, Logits | None]:
    """Compare a segment with the model.

    Returns:
        The number of equal leading tokens, their smallest margin, and the logits at the first
        difference, if there is one.
    """
    num, least = 0, float("inf")
    ids = join(prompt, answer)[:-1]
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
    """Yield the prompt and the tokens of each segment of the solver."""
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
            raise ValueError("puzzle: its givens conflict, allowed is each digit once in a unit")
        yield prompt, answer
        is_summarized = answer[-1] == END_SUMMARY
        prompt = suffix_from_last(answer, SUMMARY) if is_summarized else None
