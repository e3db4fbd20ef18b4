"""Attention to one position, found by nearest-neighbor search.

Every head reads the value of one position instead of the mean over the tied best positions. With
exact search the result is the same, since tied positions have equal values. Approximate search
(HNSW) sometimes returns another position: recall is the fraction of searches that return a best
position, and accuracy the fraction of correct tokens.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compile_tm.program.dense import dense_weights
from compile_tm.program.program import Program

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Retriever = Callable[[Floats, Floats], Places]
"""Returns positions (n,) for queries (n, k) and keys (n, k); query i searches keys 0 to i."""
_LIBRARY = "hnswlib"
_MISSING = "hnswlib: missing; pip install 'sudocot[retrieval]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalRun:
    """Result of one retriever on one sequence."""

    recall: float
    """Fraction of searches, over heads and positions, that return a best position."""
    accuracy: float
    """Fraction of correct tokens after the prompt, by teacher forcing."""
    first_wrong: int | None
    """Context length of the first wrong prediction; None if all are correct."""
    num_searches: int
    """Number of searches: heads times positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hnsw:
    """Retriever with hierarchical navigable small world graphs, from the package `hnswlib`."""

    links: int = 16
    """Neighbors of a key in the graph (M)."""
    breadth: int = 16
    """Candidates kept during insertion and search (ef)."""
    seed: int = 0
    """Seed of the graph levels."""

    def __call__(self, queries: Floats, keys: Floats) -> Places:
        """Search for every query; keys are inserted one by one, as in decoding.

        Raises:
            ValueError: `hnswlib` is not installed.
        """
        index = _library().Index(space="ip", dim=keys.shape[1])
        index.init_index(
            max_elements=len(keys),
            M=self.links,
            ef_construction=self.breadth,
            random_seed=self.seed,
        )
        index.set_ef(self.breadth)
        index.set_num_threads(1)
        found = np.empty(len(keys), dtype=np.int64)
        for position, (query, key) in enumerate(zip(queries, keys, strict=True)):
            index.add_items(key[None], [position])
            found[position] = index.knn_query(query[None], k=1)[0][0, 0]
        return found


def missing_library() -> str:
    """Return a message if the library of `Hnsw` is not installed, else an empty string."""
    return "" if importlib.util.find_spec(_LIBRARY) else _MISSING


def exact_search(queries: Floats, keys: Floats) -> Places:
    """Return the first of the best positions for each query."""
    places: Places = _causal_scores(queries, keys).argmax(axis=1)
    return places


def retrieval_run(
    program: Program,
    ids: npt.NDArray[np.integer],
    *,
    prompt_length: int,
    search: Retriever,
) -> RetrievalRun:
    """Run a program on a sequence with retrieval instead of attention.

    Args:
        program: Hardmax transformer.
        ids: Token ids (n + 1,) from the definition of the machine.
        prompt_length: Length of the prompt.
        search: Retriever.
    """
    weights = dense_weights(program)
    x = program.embed(np.asarray(ids[:-1])).astype(np.float32)
    num_found = num_searches = 0
    for number, layer in enumerate(program.layers):
        after = x.copy()
        for head in layer.heads:
            queries, keys = x[:, head.queries.index], x[:, head.keys.index]
            places = search(queries, keys)
            scores = _causal_scores(queries, keys)
            got = np.take_along_axis(scores, places[:, None], axis=1)[:, 0]
            num_found += int((got == scores.max(axis=1)).sum())
            num_searches += len(places)
            after[:, head.outputs.index] += x[places][:, head.values.index]
        hidden = np.maximum(0, after @ weights.W_1[number].T.astype(np.float32) + weights.b[number])
        x = (after + hidden @ weights.W_2[number].T).astype(np.float32)
    predicted = (x @ program.unembedding.T.astype(np.float32)).argmax(axis=1)
    is_right = predicted[prompt_length - 1 :] == ids[prompt_length:]
    wrong = np.flatnonzero(~is_right)
    return RetrievalRun(
        recall=num_found / num_searches,
        accuracy=float(is_right.mean()),
        first_wrong=int(wrong[0]) + prompt_length if len(wrong) else None,
        num_searches=num_searches,
    )


def _causal_scores(queries: Floats, keys: Floats) -> Floats:
    scores: Floats = queries @ keys.T
    scores[np.triu_indices(len(keys), 1)] = -np.inf
    return scores


def _library() -> Any:
    try:
        return importlib.import_module(_LIBRARY)
    except ImportError as error:
        raise ValueError(_MISSING) from error
