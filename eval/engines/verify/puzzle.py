"""State of a puzzle in the `verify` engine: its run and the segments that are being verified."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from eval.engines.contract import EngineStats
from eval.engines.drafts import draft_segment
from eval.engines.puzzle_run import PuzzleRun, join
from eval.engines.slots.base import NewSequence
from eval.engines.verify.draft_check import DraftedSegment
from solver.vocabulary import DECODING_STOPS, END_SUMMARY, SUMMARY, Tokens, suffix_from_last


class DraftedPuzzle:
    """A puzzle in flight.

    Attributes:
        run: Decoding state.
        segments: The current segment, then its lookahead segments. Empty while the current segment
            is decoded step by step, and after the end.
        streak: Number of latest segments that were accepted completely.
    """

    def __init__(
        self,
        run: PuzzleRun,
        *,
        slot: int,
        segment_tokens: int | None,
        max_positions: int,
        stats: EngineStats,
    ) -> None:
        """Draft the first segment in a slot."""
        self.run = run
        self.segments: deque[DraftedSegment] = deque()
        self.streak = 0
        self._segment_tokens, self._max_positions = segment_tokens, max_positions
        self._num_givens = int(np.count_nonzero(run.request.givens))
        self._stats = stats
        self._verified: Tokens = run.prompt[:0]
        self._draft(run.prompt, slot=slot)

    def _draft(self, prompt: Tokens, *, slot: int) -> None:
        """Append a drafted segment."""
        request = self.run.request
        draft = draft_segment(
            request.board,
            prompt,
            num_givens=self._num_givens,
            segment_tokens=self._segment_tokens,
            max_tokens=min(request.caps.max_segment_tokens, self._max_positions - len(prompt)),
        )
        self.segments.append(DraftedSegment(key=request.key, slot=slot, prompt=prompt, draft=draft))

    def add_lookahead(self, free: list[int]) -> bool:
        """Draft a lookahead segment in a free slot; False if there is none or it is unlikely."""
        last = self.segments[-1]
        draft = last.draft
        is_known = self.run.request.mode == "scot" and len(draft) and draft[-1] == END_SUMMARY
        if len(self.segments) > self.streak or last.model_token is not None or not is_known:
            return False
        prompt = suffix_from_last(draft, SUMMARY)
        if prompt is None or len(prompt) >= self._max_positions:
            return False
        self._draft(prompt, slot=free.pop())
        return True

    def pop_verified(self, free: list[int]) -> NewSequence | None:
        """Remove verified segments in order, add them to the run and draft the next segment.

        Args:
            free: List of free slots, to which unused slots are appended.

        Returns:
            The sequence to continue with decode steps, if a draft was rejected.
        """
        run = self.run
        while self.segments and self.segments[0].is_verified:
            segment = self.segments.popleft()
            self._stats.num_prompt_tokens += len(segment.prompt)
            tokens = segment.tokens[: run.token_budget]
            is_stopped = len(tokens) > 0 and int(tokens[-1]) in DECODING_STOPS
            self.streak = self.streak + 1 if is_stopped and segment.model_token is None else 0
            if is_stopped or len(tokens) == run.token_budget:
                self._end_segment(tokens, slot=segment.slot, free=free)
                continue
            self._drop_segments(free)
            self._verified = tokens
            return NewSequence(
                slot=segment.slot,
                key=segment.key,
                tokens=join(segment.prompt, tokens),
                num_cached=segment.num_cached,
                token_budget=run.token_budget - len(tokens),
            )
        return None

    def end_decoding(self, tokens: Tokens, *, slot: int, free: list[int]) -> None:
        """Add the tokens of the decode steps, which end the segment."""
        self._end_segment(join(self._verified, tokens), slot=slot, free=free)

    def _end_segment(self, tokens: Tokens, *, slot: int, free: list[int]) -> None:
        run = self.run
        run.end_segment(tokens)
        is_drafted = len(self.segments) > 0 and np.array_equal(self.segments[0].prompt, run.prompt)
        if run.finish_reason is None and is_drafted:
            free.append(slot)
            return
        self._drop_segments(free)
        if run.finish_reason is None:
            self._draft(run.prompt, slot=slot)
        else:
            free.append(slot)

    def _drop_segments(self, free: list[int]) -> None:
        free.extend(segment.slot for segment in self.segments)
        self.segments.clear()


def add_lookahead_segments(puzzles: Sequence[DraftedPuzzle], free: list[int]) -> None:
    """Fill free slots with lookahead segments, round-robin over the puzzles."""
    candidates = list(puzzles)
    while free and candidates:
        candidates = [puzzle for puzzle in candidates if free and puzzle.add_lookahead(free)]
