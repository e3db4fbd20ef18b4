"""A puzzle of the `verify` engine: its run, and the segments whose drafts are being checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from eval.engines.contract import EngineStats
from eval.engines.drafts import draft_segment
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.slots.base import Start
from eval.engines.verify_pass import DraftedSegment, join
from solver.vocabulary import DECODING_STOPS, END_SUMMARY, SUMMARY, Tokens


class DraftedPuzzle:
    """A puzzle in flight.

    Attributes:
        run: the rules.
        segments: the current segment, then those that follow it if all are accepted. Empty while
            the current segment is decoded step by step, and after the end.
        streak: segments that were accepted whole, one after another, up to now.
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
        """Draft the first segment, for a slot."""
        self.run = run
        self.segments: deque[DraftedSegment] = deque()
        self.streak = 0
        self._segment_tokens, self._max_positions = segment_tokens, max_positions
        self._num_givens = int(np.count_nonzero(run.request.givens))
        self._stats = stats
        self._written: Tokens = run.prompt[:0]
        self._draft(run.prompt, slot=slot)

    def _draft(self, prompt: Tokens, *, slot: int) -> None:
        """Draft a segment after the last one."""
        request = self.run.request
        draft = draft_segment(
            request.board,
            prompt,
            num_givens=self._num_givens,
            segment_tokens=self._segment_tokens,
            max_tokens=min(request.caps.max_segment_tokens, self._max_positions - len(prompt)),
        )
        self.segments.append(DraftedSegment(key=request.key, slot=slot, prompt=prompt, draft=draft))

    def look_ahead(self, free: list[int]) -> bool:
        """Draft one more segment, in a free slot, if the puzzle has earned one and it is known."""
        last = self.segments[-1]
        draft = last.draft
        is_known = self.run.request.mode == "scot" and len(draft) and draft[-1] == END_SUMMARY
        if len(self.segments) > self.streak or last.own_token is not None or not is_known:
            return False
        prompt = draft[np.flatnonzero(draft == SUMMARY)[-1] :]
        if len(prompt) >= self._max_positions:
            return False
        self._draft(prompt, slot=free.pop())
        return True

    def take_segments(self, free: list[int]) -> Start | None:
        """Take the segments that are settled, in order, and draft what comes after them.

        Args:
            free: gets the slots that are not needed any more.

        Returns:
            The segment that the model goes on with alone, if there is one.
        """
        run = self.run
        while self.segments and self.segments[0].is_settled:
            segment = self.segments.popleft()
            self._stats.num_prompt_tokens += len(segment.prompt)
            written = segment.tokens[: run.allowance]
            is_stopped = len(written) > 0 and int(written[-1]) in DECODING_STOPS
            self.streak = self.streak + 1 if is_stopped and segment.own_token is None else 0
            if is_stopped or len(written) == run.allowance:
                self._end_segment(written, slot=segment.slot, free=free)
                continue
            self._drop_segments(free)
            self._written = written
            return Start(
                slot=segment.slot,
                key=segment.key,
                tokens=join(segment.prompt, written),
                num_cached=segment.num_cached,
                allowance=run.allowance - len(written),
            )
        return None

    def end_steps(self, tokens: Tokens, *, slot: int, free: list[int]) -> None:
        """Take what the model wrote alone, to the end of the segment."""
        self._end_segment(join(self._written, tokens), slot=slot, free=free)

    def _end_segment(self, tokens: Tokens, *, slot: int, free: list[int]) -> None:
        run = self.run
        run.end_segment(tokens)
        is_foreseen = len(self.segments) > 0 and np.array_equal(self.segments[0].prompt, run.prompt)
        if run.ended_by is None and is_foreseen:
            free.append(slot)
            return
        self._drop_segments(free)
        if run.ended_by is None:
            self._draft(run.prompt, slot=slot)
        else:
            free.append(slot)

    def _drop_segments(self, free: list[int]) -> None:
        free.extend(segment.slot for segment in self.segments)
        self.segments.clear()


def fill_with_segments_ahead(puzzles: Sequence[DraftedPuzzle], free: list[int]) -> None:
    """Give free slots to segments ahead, in turn, as long as a puzzle takes one."""
    takers = list(puzzles)
    while free and takers:
        takers = [puzzle for puzzle in takers if free and puzzle.look_ahead(free)]
