"""The `segment` engine: continuous batching of segments in fixed slots.

Each segment is a sequence of its own: the next prompt of an SCoT is prefilled into the slot of the
previous segment. The cost of a decode step therefore depends on the length of the running segments
only, not on the length of the whole chain of thought, and a slot is refilled as soon as its
sequence finishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval.engines.contract import EngineStats, Request, Result
from eval.engines.factory import make_network
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.run_queue import RunQueue
from eval.engines.slots.base import OUT_OF_MEMORY, NewSequence
from eval.engines.slots.factory import make_slots
from eval.network.model_folder import ModelFolder
from eval.network.types import TokenNetwork


class SegmentEngine:
    """Engine that runs a `TokenNetwork`."""

    name = "segment"

    def __init__(self, network: TokenNetwork, *, num_slots: int) -> None:
        """Allocate the slots.

        Args:
            network: The network.
            num_slots: Number of segments decoded concurrently.
        """
        self.precision = network.precision
        self.device = str(network.device)
        self.stats = EngineStats()
        self._num_ids, self._max_positions = network.num_ids, network.max_positions
        self._slots = make_slots(network, num_slots=num_slots)

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> SegmentEngine:
        """See `eval.engines.factory`."""
        network = make_network(folder, precision=options.precision, device=options.local_device)
        return cls(network, num_slots=options.num_slots)

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
                    slots.add([_new_sequence(slot, runs[slot]) for slot in ready])
                ready.clear()
                finished = slots.advance()
            except OUT_OF_MEMORY as error:
                slots.halve(error)
                waiting.put_back(runs.values())
                runs, ready, free = {}, [], list(reversed(range(slots.num_slots)))
                continue
            for slot, tokens in finished.items():
                run = runs[slot]
                run.end_segment(tokens)
                if run.finish_reason is None:
                    ready.append(slot)
                    continue
                del runs[slot]
                free.append(slot)
                self._count(run.num_new_tokens)
                yield run.result()

    def close(self) -> None:
        """See `eval.engines.contract.Engine`."""

    def _count(self, num_new_tokens: int) -> None:
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_forward_passes = self._slots.num_forward_passes
        self.stats.num_prompt_tokens = self._slots.num_prompt_tokens


def _new_sequence(slot: int, run: PuzzleRun) -> NewSequence:
    return NewSequence(
        slot=slot, key=run.request.key, tokens=run.prompt, token_budget=run.token_budget
    )
