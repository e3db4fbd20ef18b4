"""Task of inspect_ai.

inspect eval eval/harnesses/inspect_task.py -T puzzles=test.csv --model openai/gpt-4o
"""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, accuracy, mean, scorer, stderr
from inspect_ai.solver import TaskState, generate

from eval.harnesses.documents import (
    Document,
    answer_of,
    load_documents,
    messages_of,
    score_text,
)

_TRUNCATED = ("max_tokens", "model_length")
_MESSAGES = {"user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def sudoku(puzzles: str, shots: int = 0, limit: int | None = None) -> Task:
    """Sudoku puzzles of a list, by the text protocol.

    Args:
        puzzles: Puzzle file.
        shots: Number of solved examples before each question.
        limit: Maximum number of puzzles.
    """
    documents = load_documents(puzzles, shots=shots, limit=limit)
    samples = [
        Sample(
            input=_chat(document),
            target=answer_of(document),
            id=document["key"],
            metadata=dict(document),
        )
        for document in documents
    ]
    return Task(dataset=MemoryDataset(samples), solver=generate(), scorer=text_protocol())


@scorer(
    metrics={"solved": [accuracy(), stderr()], "lenient": [accuracy()], "right_cells": [mean()]}
)
def text_protocol() -> Scorer:
    """Scores of the text protocol: `solved` is the one to report."""

    async def score(state: TaskState, target: Target) -> Score:
        del target
        document = Document(**state.metadata)  # type: ignore[typeddict-item]
        text = state.output.completion
        is_truncated = state.output.stop_reason in _TRUNCATED
        metrics = score_text(document, text, is_truncated=is_truncated)
        return Score(value=dict(metrics), answer=text)

    return score


def _chat(document: Document) -> list[ChatMessage]:
    return [
        _MESSAGES[message["role"]](content=message["content"]) for message in messages_of(document)
    ]
