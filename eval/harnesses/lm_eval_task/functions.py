"""Functions of the task `sudocot.yaml` of lm-evaluation-harness, zero-shot."""

from __future__ import annotations

from typing import Any

import datasets

from eval.harnesses.documents import Document, answer_of, load_documents, question_of, score_text


def load(**metadata: Any) -> dict[str, datasets.Dataset]:
    """Load the puzzles; `--metadata` gives `puzzles` (a file) and may give `limit`."""
    if "puzzles" not in metadata:
        raise ValueError("""puzzles: got none, give --metadata '{"puzzles": "test.csv"}'""")
    documents = load_documents(metadata["puzzles"], limit=metadata.get("limit"))
    return {"test": datasets.Dataset.from_list([dict(document) for document in documents])}


def question(document: Document) -> str:
    """Return the prompt."""
    return question_of(document)


def answer(document: Document) -> str:
    """Return the solution."""
    return answer_of(document)


def process_results(document: Document, results: list[str]) -> dict[str, float]:
    """Score the reply."""
    metrics = score_text(document, results[0])
    return {
        "solved": metrics["solved"],
        "lenient": metrics["lenient"],
        "right_cells": metrics["right_cells"],
    }
