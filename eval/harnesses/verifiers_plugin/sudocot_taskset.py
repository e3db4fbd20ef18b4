"""Taskset of verifiers (0.4 or later); this folder must be on the module path.

PYTHONPATH=eval/harnesses/verifiers_plugin vf-eval sudocot-taskset --env.taskset.puzzles test.csv
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import verifiers.v1 as vf

from eval.harnesses.documents import (
    Document,
    Metrics,
    load_documents,
    messages_of,
    score_text,
)

__all__ = ["SudocotTaskset"]


class SudocotData(vf.TaskData):
    """A puzzle."""

    document: dict[str, str | int]
    """The puzzle (`eval.harnesses.documents.Document`)."""


class SudocotTaskConfig(vf.TaskConfig):
    """Options of the rewards."""

    partial_credit: float = 0.0
    """Weight of the share of right cells in the reward of an unsolved puzzle, below 1."""


class SudocotTask(vf.Task[SudocotData, vf.State, SudocotTaskConfig]):
    """A puzzle and its rewards."""

    def _metrics(self, trace: vf.Trace) -> Metrics:
        return score_text(cast("Document", self.data.document), trace.last_reply)

    @vf.reward(weight=1.0)
    async def solved(self, trace: vf.Trace) -> float:
        """Return 1 if the strict parser finds the solution, else the weighted partial credit."""
        metrics = self._metrics(trace)
        return metrics["solved"] or self.config.partial_credit * metrics["right_cells"]

    @vf.metric
    async def lenient(self, trace: vf.Trace) -> float:
        """Return 1 if the lenient parser finds the solution."""
        return self._metrics(trace)["lenient"]

    @vf.metric
    async def right_cells(self, trace: vf.Trace) -> float:
        """Return the share of blank cells that are filled as in the solution."""
        return self._metrics(trace)["right_cells"]


class SudocotConfig(vf.TasksetConfig):
    """Options of the taskset."""

    puzzles: str = ""
    """Puzzle file."""
    limit: int | None = None
    """Maximum number of puzzles."""
    shots: int = 0
    """Solved examples before each question."""
    task: SudocotTaskConfig = SudocotTaskConfig()
    """Options of the rewards."""


class SudocotTaskset(vf.Taskset[SudocotTask, SudocotConfig]):
    """Puzzles of a list, by the text protocol."""

    def load(self) -> Iterator[SudocotTask]:
        """Yield a task for each puzzle."""
        config = self.config
        for document in load_documents(config.puzzles, shots=config.shots, limit=config.limit):
            messages = messages_of(document)
            prompt = messages[0]["content"] if len(messages) == 1 else messages
            data = SudocotData(id=document["key"], prompt=prompt, document=dict(document))
            yield SudocotTask(data, config.task)
