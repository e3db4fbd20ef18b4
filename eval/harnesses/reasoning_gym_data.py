"""Data set of reasoning-gym; importing the module registers it as `sudocot`.

data = reasoning_gym.create_dataset("sudocot", puzzles="test.csv")
data.score_answer(reply, data[0])  # 1.0 if solved
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reasoning_gym.factory import ProceduralDataset, register_dataset

from eval.harnesses.documents import Document, answer_of, load_documents, question_of, score_text

NAME = "sudocot"


@dataclass
class SudocotConfig:
    """Options of the data set."""

    puzzles: str
    """Puzzle file."""
    size: int | None = None
    """Maximum number of puzzles."""
    seed: int | None = None
    """Unused: the order of the puzzles is fixed."""
    partial_credit: float = 0.0
    """Weight of the share of right cells in the score of an unsolved puzzle, below 1."""

    def validate(self) -> None:
        """Check the options.

        Raises:
            ValueError: The weight is out of range.
        """
        if not 0 <= self.partial_credit < 1:
            raise ValueError(f"partial_credit: got {self.partial_credit}, allowed is 0 to below 1")


class SudocotDataset(ProceduralDataset):
    """Puzzles of a list, by the text protocol, zero-shot."""

    def __init__(self, config: SudocotConfig) -> None:
        self._documents = load_documents(config.puzzles, limit=config.size)
        super().__init__(config=config, seed=config.seed, size=len(self._documents))

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Return question, answer and metadata of a puzzle."""
        document = self._documents[idx]
        metadata = {"source_dataset": NAME, "source_index": idx, **document}
        return {
            "question": question_of(document),
            "answer": answer_of(document),
            "metadata": metadata,
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over all puzzles."""
        return (self[idx] for idx in range(len(self._documents)))

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """Return 1 if the strict parser finds the solution, else the weighted partial credit."""
        names = Document.__annotations__
        document = {name: entry["metadata"][name] for name in names}
        metrics = score_text(Document(**document), answer or "")  # type: ignore[typeddict-item]
        if metrics["solved"]:
            return 1.0
        return float(self.config.partial_credit) * metrics["right_cells"]


register_dataset(NAME, SudocotDataset, SudocotConfig)
