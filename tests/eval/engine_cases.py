"""Requests, scripts and comparisons shared by the tests of engines."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from data.model_format.facts import Mode
from eval.engines.contract import Caps, Request, Result
from eval.engines.scripted import Script, ScriptedCache, solver_script
from eval.network.cache import PaddedCache
from eval.network.ragged_cache import RaggedCache
from eval.network.types import SlotCache
from solver.boards import Board, get_board
from solver.vocabulary import SUMMARY, Tokens, Vocabulary
from tests.training.toy import toy_puzzle

BOARD = get_board("4x4")
HARD_9X9 = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
WIDE = Caps(max_new_tokens=100_000, max_segment_tokens=1_000)


def grid(text: str) -> npt.NDArray[np.uint8]:
    return np.array([0 if c == "." else int(c) for c in text], np.uint8)


def cache_bytes(cache: SlotCache) -> int:
    """Return the memory of a KV cache in bytes."""
    if isinstance(cache, ScriptedCache):
        return cache.ids.nbytes
    if isinstance(cache, RaggedCache):
        return sum(part.nbytes for layer in cache.layers for part in layer)
    assert isinstance(cache, PaddedCache)
    return sum(part.nbytes for part in (*cache.keys, *cache.values))


def toy_requests(
    count: int, *, seed: int = 0, is_cot: bool = False, caps: Caps = WIDE
) -> list[Request]:
    """4x4 puzzles, all with `NUM_GIVENS` givens, so that one script does for all."""
    rng = np.random.default_rng(seed)
    mode: Mode = "cot" if is_cot else "scot"
    givens: list[npt.NDArray[np.uint8]] = []
    while len(givens) < count:
        puzzle = toy_puzzle(rng)
        filled = rng.permutation(np.flatnonzero(puzzle))
        if len(filled) >= NUM_GIVENS:
            puzzle[filled[NUM_GIVENS:]] = 0
            givens.append(puzzle)
    return [
        Request(key=f"puzzle-{k}", board=BOARD, givens=puzzle, mode=mode, caps=caps)
        for k, puzzle in enumerate(givens)
    ]


NUM_GIVENS = 4


def toy_script(*, segment_tokens: int | None = 12) -> Script:
    return solver_script(BOARD, num_givens=NUM_GIVENS, segment_tokens=segment_tokens)


def failing_script(script: Script, *, share: float, seed: int = 0, board: Board = BOARD) -> Script:
    """A script that goes wrong in a share of its segments, in one of several ways.

    What it answers depends on the prompt alone, as with a model.
    """
    size = Vocabulary(board).size

    def answer(prompt: Tokens) -> Tokens:
        tokens = script(prompt)
        rng = np.random.default_rng([seed, zlib.crc32(prompt.tobytes())])
        if not len(tokens):  # the prompt means nothing to the solver: it babbles
            return cast("Tokens", rng.integers(3, size, 40).astype(prompt.dtype))
        return spoil(prompt, tokens.copy(), rng) if rng.random() < share else tokens

    def spoil(prompt: Tokens, tokens: Tokens, rng: np.random.Generator) -> Tokens:
        place = int(rng.integers(len(tokens)))
        match rng.integers(5):
            case 0:  # one wrong token
                tokens[place] = rng.integers(size)
            case 1:  # writes on and on
                return cast("Tokens", np.full(5_000, 7, dtype=prompt.dtype))
            case 2 if prompt[0] == SUMMARY:  # back to its own prompt
                return cast("Tokens", np.concatenate([tokens[:place], prompt]))
            case 3:  # a stop token too early
                tokens[place] = rng.choice([4, 6])
            case _:  # two wrong tokens
                tokens[place] = tokens[-2] = rng.integers(8, size)
        return tokens

    return answer


def describe(result: Result) -> tuple[object, ...]:
    """All of a result that must not depend on the engine."""
    return (
        result.key,
        result.finish_reason,
        result.num_new_tokens,
        result.num_segments,
        None if result.output is None else result.output.tolist(),
        [segment.tolist() for segment in result.segments],
    )


def by_key(results: Iterable[Result]) -> dict[str, tuple[object, ...]]:
    described = [describe(result) for result in results]
    table = {str(row[0]): row for row in described}
    assert len(table) == len(described), "a puzzle was decoded twice"
    return table


def shuffled(requests: Sequence[Request], seed: int) -> list[Request]:
    order = np.random.default_rng(seed).permutation(len(requests))
    return [requests[k] for k in order]
