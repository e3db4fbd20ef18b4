"""The `verify` engine: the solver drafts, the model checks; the same results as `segment`, sooner.

The solver's continuation of a prompt is known before the model has read it. One packed forward pass
over prompt and draft tells how much of the draft greedy decoding would write. Where a draft is
accepted to its end, the segment is done without a single step; where the model differs, its own
token is known too, the cache holds what led to it, and the segment is decoded on in its slot, step
by step, until its end gives the next prompt and the solver a new chance.

    draft     all drafts in the slots are checked, pass by pass, until each is accepted or left;
              new puzzles take the slots of finished ones, several at a time
    decode    then the slots are full of segments that need steps, or the work is nearly done;
              they take steps together until one ends, and drafting goes on in its slot

Slots for which no puzzle is waiting check segments ahead: those that come next if the model goes on
as the solver does. A puzzle gets as many as the number of its latest segments that were accepted
whole, so a model that fails often never pays for them.

How far to draft at first follows from what was accepted lately, so a model that leaves the solver
early pays for little more than its prompts; while a draft is accepted, it is drawn twice as far
each time. A draft is one segment, so memory does not grow with the length of a chain of thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eval.engines.begin import RunQueue
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.factory import make_network
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.slots.base import OUT_OF_MEMORY, Start
from eval.engines.slots.factory import make_slots
from eval.engines.verify_pass import DraftedSegment, check_drafts
from eval.engines.verify_puzzle import DraftedPuzzle, fill_with_segments_ahead
from eval.network.model_folder import ModelFolder
from eval.network.types import Span, TokenNetwork

_PASS_TOKENS = 8_192
"""Tokens of a forward pass, unless the prompt of one segment has more."""
_SPAN_TOKENS = 2_048
"""Tokens of one segment in a pass; their attention is a matrix."""
_LEAST_DRAFT, _FIRST_REACH, _GOOD_REACH = 4, 64, 16
_REACH_WEIGHT = 1 / 16
_REFILL_SHARE = 8
"""Part of the slots that must be free for new puzzles, while drafts are accepted: a pass over a
single draft wastes its time. Where they are not, an idle slot wastes more."""


class VerifyEngine:
    """Engine over a network of ours and the solver."""

    name = "verify"

    def __init__(
        self, network: TokenNetwork, *, num_slots: int, segment_tokens: int | None
    ) -> None:
        """Allocate the slots.

        Args:
            network: the network.
            num_slots: segments that are checked or decoded side by side.
            segment_tokens: trace tokens after which the model was trained to end a segment; None
                for CoT.
        """
        self.precision = network.precision
        self.stats = EngineStats()
        self._network = network
        self._segment_tokens = segment_tokens
        self._slots = make_slots(network, num_slots=num_slots)
        self._num_passes = 0
        self._reach = float(_FIRST_REACH)

    @property
    def num_cache_bytes(self) -> int:
        """Memory of keys and values."""
        return self._slots.cache.num_bytes

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
        stepped: dict[int, DraftedPuzzle] = {}
        starts: list[Start] = []
        is_exhausted = False
        while True:
            if len(free) >= self._least_free or not stepped:
                while free and (run := waiting.pop()) is not None:
                    drafted.append(self._draft(run, slot=free.pop()))
                is_exhausted = len(free) > 0
            if not drafted and not stepped:
                return
            try:
                if starts:
                    slots.begin(starts)
                starts = []
                if drafted:
                    if is_exhausted:
                        fill_with_segments_ahead(drafted, free)
                    self._check(drafted)
                else:
                    for slot, tokens in slots.advance().items():
                        puzzle = stepped.pop(slot)
                        puzzle.end_steps(tokens, slot=slot, free=free)
                        drafted.append(puzzle)
            except OUT_OF_MEMORY as error:
                slots.halve(error)
                waiting.put_back(puzzle.run for puzzle in (*drafted, *stepped.values()))
                drafted, stepped, starts = [], {}, []
                free = list(reversed(range(slots.num_slots)))
                continue
            for puzzle in drafted:
                start = puzzle.take_segments(free)
                if start is not None:
                    starts.append(start)
                    stepped[start.slot] = puzzle
                elif puzzle.run.ended_by is not None:
                    self._count(puzzle.run.num_new_tokens)
                    yield puzzle.run.result()
            drafted = [puzzle for puzzle in drafted if puzzle.segments]

    @property
    def _least_free(self) -> int:
        return self._slots.num_slots // _REFILL_SHARE if self._reach > _GOOD_REACH else 1

    def _draft(self, run: PuzzleRun, *, slot: int) -> DraftedPuzzle:
        return DraftedPuzzle(
            run,
            slot=slot,
            segment_tokens=self._segment_tokens,
            max_positions=self._network.max_positions,
            stats=self.stats,
        )

    def _check(self, drafted: Sequence[DraftedPuzzle]) -> None:
        """Check as many of the drafts as fit into one forward pass, the oldest puzzles first."""
        picked: list[tuple[DraftedSegment, Span]] = []
        num_fed = 0
        for segment in (s for puzzle in drafted for s in puzzle.segments if not s.is_settled):
            span = segment.span(
                max_draft=max(_LEAST_DRAFT, int(2 * self._reach), segment.num_accepted),
                max_fed=_SPAN_TOKENS,
            )
            num_fed += len(span.tokens)
            if picked and num_fed > _PASS_TOKENS:
                break
            picked.append((segment, span))
        if not picked:
            return
        self._slots.make_room(max(len(s.prompt) + len(s.draft) for s, _ in picked))
        check_drafts(self._network, self._slots.cache, picked, stats=self.stats)
        self._num_passes += 1
        for segment, _ in picked:
            if segment.is_settled:
                self._reach += _REACH_WEIGHT * (segment.num_accepted - self._reach)

    def _count(self, num_new_tokens: int) -> None:
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_forward_passes = self._num_passes + self._slots.num_forward_passes
