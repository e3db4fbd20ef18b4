"""Engine without a model: returns the solver's tokens, and fails on some puzzles."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from data.model_format.precision import get_precision
from eval.engines.contract import Caps, EngineStats, Request, Result
from eval.engines.puzzle_run import PuzzleRun
from eval.results.folder import EvaluationFolder
from eval.results.records import (
    DataRecord,
    EvaluationConfig,
    ModelRecord,
    SampledPuzzle,
    SamplingRecord,
)
from eval.results.runner import open_or_create
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.puzzles import format_grid, puzzle_id
from solver.vocabulary import END_SUMMARY, SUMMARY, Tokens
from tests.training.toy import toy_puzzle

BOARD = get_board("4x4")


class FakeEngine:
    """Puzzles end in an order of their own; every fifth is answered wrong, every seventh loops."""

    name = "segment"
    device = "cpu"

    def __init__(self, *, delay_s: float = 0.0, reverse: bool = False) -> None:
        self.precision = get_precision("fp32")
        self.stats = EngineStats()
        self._delay_s, self._reverse = delay_s, reverse

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        for request in sorted(requests, key=lambda request: request.key, reverse=self._reverse):
            time.sleep(self._delay_s)
            run = PuzzleRun(request, max_positions=100_000)
            while run.finish_reason is None:
                run.end_segment(write_segment(run)[: run.token_budget])
                self.stats.num_forward_passes += 1
            self.stats.num_new_tokens += run.num_new_tokens
            self.stats.num_prompt_tokens += len(run.prompt)
            yield run.result()

    def close(self) -> None:
        """See `eval.engines.contract.Engine`."""


def write_segment(run: PuzzleRun) -> Tokens:
    """What the solver writes after the input, or what a model writes that fails."""
    request = run.request
    number = int(request.key, 16)
    if number % 7 == 0 and request.mode == "scot":
        return np.array([SUMMARY, END_SUMMARY], dtype=np.uint8)
    solved = trace(request.board, request.givens)
    tokens = solved.tokens[2 * np.count_nonzero(request.givens) + 2 :].copy()
    if number % 5 == 0:
        tokens[[-2, -4]] = tokens[[-4, -2]]  # two digits of the last row change places
    return tokens


def toy_sample(num_puzzles: int) -> tuple[SampledPuzzle, ...]:
    """Puzzles of the 4x4 board, by key."""
    rng = np.random.default_rng(0)
    puzzles: dict[str, SampledPuzzle] = {}
    while len(puzzles) < num_puzzles:
        grid = toy_puzzle(rng)
        key = f"{puzzle_id(BOARD, grid[None])[0]:016x}"
        length = len(trace(BOARD, grid).tokens)
        puzzles[key] = SampledPuzzle(
            key=key,
            givens=format_grid(BOARD, grid),
            cot_length=length,
            rating=None,
            groups={"cot_length": "64-127" if length >= 64 else "32-63"},
        )
    return tuple(puzzles[key] for key in sorted(puzzles))


def toy_config(num_puzzles: int, *, keeps_tokens: bool = True, seed: int = 0) -> EvaluationConfig:
    """Settings of an evaluation of `toy_sample`."""
    return EvaluationConfig(
        board="4x4",
        mode="scot",
        model=ModelRecord(
            name="toy", digest="0" * 64, model_type="llama", num_parameters=1, facts={}
        ),
        data=DataRecord(
            name="list", digest="1" * 64, sample_digest="2" * 64, num_usable=99, excluded={}
        ),
        sampling=SamplingRecord(kind="random", count=num_puzzles, seed=seed),
        spreads=(),
        num_sampled=num_puzzles,
        caps=Caps(max_new_tokens=1000, max_segment_tokens=1000),
        engine="segment",
        precision=get_precision("fp32"),
        keeps_tokens=keeps_tokens,
    )


def toy_folder(path: Path, num_puzzles: int, *, keeps_tokens: bool = True) -> EvaluationFolder:
    """Begin an evaluation, or go on with it."""
    config = toy_config(num_puzzles, keeps_tokens=keeps_tokens)
    return open_or_create(path, config, toy_sample(num_puzzles))
