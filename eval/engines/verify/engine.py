"""The `verify` engine: speculative decoding with the solver as draft model.

The results are those of the engine `segment`. The solver drafts a whole segment from its prompt,
and packed forward passes over prompt and draft determine how many draft tokens greedy decoding
would generate. A segment whose draft is accepted completely needs no decode step. At the first
rejected token, the model's own token is known as well, and the rest of the segment is decoded step
by step in its slot; the next segment is drafted again. The engine alternates between two phases:

    verify    Check all drafts, pass by pass, until each is accepted or rejected. New puzzles take
              the slots of finished ones, several at a time.
    decode    Once all slots hold rejected segments, or no puzzle is waiting: run decode steps until
              a segment finishes, then draft in its slot.

If no puzzle is waiting, free slots verify lookahead segments: the next segments of a puzzle under
the assumption that the model follows the solver. The number of lookahead segments of a puzzle is at
most that of its latest segments that were accepted completely.

The number of draft tokens per pass adapts to the recent acceptance lengths: a model that deviates
early costs little more than its prompts. While a draft is accepted, the number doubles with each
pass. A draft is one segment, so that memory does not grow with the length of a chain of thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eval.engines.contract import EngineStats, Request, Result
from eval.engines.factory import make_network
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.run_queue import RunQueue
from eval.engines.slots.base import OUT_OF_MEMORY, NewSequence
from eval.engines.slots.factory import make_slots
from eval.engines.verify.draft_check import DraftedSegment, verify_drafts
from eval.engines.verify.puzzle import DraftedPuzzle, add_lookahead_segments
from eval.network.model_folder import ModelFolder
from eval.network.types import Span, TokenNetwork

_PASS_TOKENS = 8_192
"""Maximum number of tokens of a forward pass, unless a single prompt is longer."""
_SPAN_TOKENS = 2_048
"""Maximum number of tokens of one segment per pass; their attention scores are a dense matrix."""
_MIN_DRAFT = 4
"""Minimum number of draft tokens per pass."""
_INITIAL_ACCEPTED, _HIGH_ACCEPTED = 64, 16
"""Initial mean number of accepted tokens per draft, and the one from which puzzles are added in
groups (`_REFILL_FRACTION`)."""
_EMA_WEIGHT = 1 / 16
"""Weight of a new sample in the moving average of accepted tokens."""
_REFILL_FRACTION = 8
"""With high acceptance, wait until one in so many slots is free before adding puzzles, as a pass
over a single draft is inefficient. With low acceptance, an idle slot costs more."""


class VerifyEngine:
    """Engine that verifies the solver's drafts with a `TokenNetwork`."""

    name = "verify"

    def __init__(
        self, network: TokenNetwork, *, num_slots: int, segment_tokens: int | None
    ) -> None:
        """Allocate the slots.

        Args:
            network: The network.
            num_slots: Number of segments verified or decoded concurrently.
            segment_tokens: Trace tokens per segment of the model's training data; None for CoT.
        """
        self.precision = network.precision
        self.device = str(network.device)
        self.stats = EngineStats()
        self._network = network
        self._segment_tokens = segment_tokens
        self._slots = make_slots(network, num_slots=num_slots)
        self._num_passes = 0
        self._mean_accepted = float(_INITIAL_ACCEPTED)

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> VerifyEngine:
        """See `eval.engines.factory`."""
        network = make_network(folder, precision=options.precision, device=options.local_device)
        return cls(network, num_slots=options.num_slots, segment_tokens=folder.facts.segment_tokens)

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        slots, network = self._slots, self._network
        slots.clear()
        waiting = RunQueue(requests, num_ids=network.num_ids, max_positions=network.max_positions)
        free = list(reversed(range(slots.num_slots)))
        drafted: list[DraftedPuzzle] = []
        decoding: dict[int, DraftedPuzzle] = {}
        rejected: list[NewSequence] = []
        is_exhausted = False
        while True:
            if len(free) >= self._min_free or not decoding:
                while free and (run := waiting.pop()) is not None:
                    drafted.append(self._draft(run, slot=free.pop()))
                is_exhausted = len(free) > 0
            if not drafted and not decoding:
                return
            try:
                if rejected:
                    slots.add(rejected)
                rejected = []
                if drafted:
                    if is_exhausted:
                        add_lookahead_segments(drafted, free)
                    self._verify(drafted)
                else:
                    for slot, tokens in slots.advance().items():
                        puzzle = decoding.pop(slot)
                        puzzle.end_decoding(tokens, slot=slot, free=free)
                        drafted.append(puzzle)
            except OUT_OF_MEMORY as error:
                slots.halve(error)
                waiting.put_back(puzzle.run for puzzle in (*drafted, *decoding.values()))
                drafted, decoding, rejected = [], {}, []
                free = list(reversed(range(slots.num_slots)))
                continue
            for puzzle in drafted:
                sequence = puzzle.pop_verified(free)
                if sequence is not None:
                    rejected.append(sequence)
                    decoding[sequence.slot] = puzzle
                elif puzzle.run.finish_reason is not None:
                    self._count(puzzle.run.num_new_tokens)
                    yield puzzle.run.result()
            drafted = [puzzle for puzzle in drafted if puzzle.segments]

    def close(self) -> None:
        """See `eval.engines.contract.Engine`."""

    @property
    def _min_free(self) -> int:
        """Minimum number of free slots for adding puzzles."""
        is_high = self._mean_accepted > _HIGH_ACCEPTED
        return self._slots.num_slots // _REFILL_FRACTION if is_high else 1

    def _draft(self, run: PuzzleRun, *, slot: int) -> DraftedPuzzle:
        return DraftedPuzzle(
            run,
            slot=slot,
            segment_tokens=self._segment_tokens,
            max_positions=self._network.max_positions,
            stats=self.stats,
        )

    def _verify(self, drafted: Sequence[DraftedPuzzle]) -> None:
        """Verify as many drafts as fit into one forward pass, oldest puzzles first."""
        batch: list[tuple[DraftedSegment, Span]] = []
        num_tokens = 0
        for segment in (s for puzzle in drafted for s in puzzle.segments if not s.is_verified):
            span = segment.span(
                max_draft=max(_MIN_DRAFT, int(2 * self._mean_accepted), segment.num_accepted),
                max_tokens=_SPAN_TOKENS,
            )
            num_tokens += len(span.tokens)
            if batch and num_tokens > _PASS_TOKENS:
                break
            batch.append((segment, span))
        if not batch:
            return
        self._slots.ensure_capacity(max(len(s.prompt) + len(s.draft) for s, _ in batch))
        verify_drafts(self._network, self._slots.cache, batch, stats=self.stats)
        self._num_passes += 1
        for segment, _ in batch:
            if segment.is_verified:
                self._mean_accepted += _EMA_WEIGHT * (segment.num_accepted - self._mean_accepted)

    def _count(self, num_new_tokens: int) -> None:
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_forward_passes = self._num_passes + self._slots.num_forward_passes
