"""The `segment` engine: fixed slots, each refilled the moment its segment ends.

A segment is a sequence of its own: an SCoT's next prompt is prefilled afresh, in the slot of the
segment that wrote it. So a step costs what the segments in the slots cost, however long the chains
of thought have become, and no slot waits for another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval.engines.begin import RunQueue
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.factory import make_network
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.slots.base import OUT_OF_MEMORY, Start
from eval.engines.slots.factory import make_slots
from eval.network.model_folder import ModelFolder
from eval.network.types import TokenNetwork


class SegmentEngine:
    """Engine over a network of ours."""

    name = "segment"

    def __init__(self, network: TokenNetwork, *, num_slots: int) -> None:
        """Allocate the slots.

        Args:
            network: the network.
            num_slots: segments that are decoded side by side.
        """
        self.precision = network.precision
        self.stats = EngineStats()
        self._num_ids, self._max_positions = network.num_ids, network.max_positions
        self._slots = make_slots(network, num_slots=num_slots)

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> SegmentEngine:
        """See `eval.engines.factory`."""
        network = make_network(folder, precision=options.precision, device=options.local_device)
        return cls(network, num_slots=options.num_slots)

    @property
    def num_cache_bytes(self) -> int:
        """Memory of keys and values."""
        return self._slots.cache.num_bytes

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        slots = self._slots
        slots.clear()
        waiting = RunQueue(requests, num_ids=self._num_ids, max_positions=self._max_positions)
        runs: dict[int, PuzzleRun] = {}
        free = list(reversed(range(slots.num_slots)))
        ready: list[int] = []
        while True:
            while free and (run := waiting.pop()) is not None:
                runs[free[-1]] = run
                ready.append(free.pop())
            if not runs:
                return
            try:
                if ready:
                    slots.begin([_start(slot, runs[slot]) for slot in ready])
                ready.clear()
                ended = slots.advance()
            except OUT_OF_MEMORY as error:
                slots.halve(error)
                waiting.put_back(runs.values())
                runs, ready, free = {}, [], list(reversed(range(slots.num_slots)))
                continue
            for slot, tokens in ended.items():
                run = runs[slot]
                run.end_segment(tokens)
                if run.ended_by is None:
                    ready.append(slot)
                    continue
                del runs[slot]
                free.append(slot)
                self._count(run.num_new_tokens)
                yield run.result()

    def _count(self, num_new_tokens: int) -> None:
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_forward_passes = self._slots.num_forward_passes
        self.stats.num_prompt_tokens = self._slots.num_prompt_tokens


def _start(slot: int, run: PuzzleRun) -> Start:
    return Start(slot=slot, key=run.request.key, tokens=run.prompt, allowance=run.allowance)
