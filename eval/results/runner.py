"""Evaluation loop with resumption.

    with locked_folder(out):
        folder = open_or_create(out, config, sample)
        evaluate(folder, engine, part=None)

The caller must lock the folder before opening it, so that two processes cannot both create it.

Puzzles are sorted by descending CoT length, so that out-of-memory errors occur early and no long
puzzle remains alone at the end. A part takes every n-th puzzle of this order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from data.runtime.digests import DIGESTS_FILE, read_digests
from data.runtime.parts import Part
from data.runtime.progress import progress, repeated
from eval.engines.contract import Engine, Request
from eval.results.folder import CONFIG_FILE, SAMPLE_FILE, SUMMARY_FILE, EvaluationFolder, ResultLog
from eval.results.records import Cost, EvaluationConfig, ResultRow, SampledPuzzle
from eval.results.time_left import TimeLeft
from solver.boards import Board
from solver.puzzles import parse_puzzle

logger = logging.getLogger(__name__)


def open_existing(out: Path, config: EvaluationConfig) -> EvaluationFolder | None:
    """Open the evaluation in `out`, or return None if there is none.

    Args:
        out: The folder, which need not exist.
        config: Expected settings.

    Raises:
        ValueError: The folder contains other files, or an evaluation with different settings; the
            message lists them.
    """
    if not (out / CONFIG_FILE).exists():
        if out.exists() and any(
            path.name not in (SAMPLE_FILE, DIGESTS_FILE) for path in out.glob("[!.]*")
        ):
            raise ValueError(f"out: {out} contains files but no evaluation")
        return None
    folder = EvaluationFolder.open(out)
    differences = different_settings(folder.config, config)
    if differences:
        raise ValueError(
            f"out: {out} holds an evaluation that differs in {'; '.join(differences)}. "
            "Use the same options to resume it, or another folder"
        )
    return folder


def open_or_create(
    out: Path, config: EvaluationConfig, sample: Sequence[SampledPuzzle]
) -> EvaluationFolder:
    """Create an evaluation, or open an existing one to resume it.

    Args:
        out: The folder.
        config: Settings with the current session only.
        sample: The puzzles, by key.

    Raises:
        ValueError: The folder cannot be resumed (`open_existing`).
    """
    folder = open_existing(out, config)
    if folder is None:
        return EvaluationFolder.create(out, config, sample)
    folder.write_config(replace(config, sessions=folder.config.sessions + config.sessions))
    return folder


def different_settings(theirs: EvaluationConfig, ours: EvaluationConfig) -> list[str]:
    """Return the settings in which two evaluations differ, except for their sessions."""
    differences = []
    for name, value in ours.identity().items():
        their_value = theirs.identity()[name]
        if isinstance(value, dict) and isinstance(their_value, dict):
            pairs = {
                f"{name}.{key}": (their_value.get(key), value.get(key))
                for key in sorted(value.keys() | their_value.keys())
            }
        else:
            pairs = {name: (their_value, value)}
        differences += [f"{key} ({a}, got {b})" for key, (a, b) in pairs.items() if a != b]
    return differences


def part_of_sample(sample: Sequence[SampledPuzzle], part: Part | None) -> list[SampledPuzzle]:
    """Return the puzzles of a part, or all, by descending CoT length."""
    ordered = sorted(sample, key=lambda puzzle: (-puzzle.cot_length, puzzle.key))
    return ordered[part.index :: part.count] if part else ordered


def request_of(board: Board, puzzle: SampledPuzzle, config: EvaluationConfig) -> Request:
    """Return the request of a puzzle."""
    _, givens = parse_puzzle(puzzle.givens, board=board)
    return Request(key=puzzle.key, board=board, givens=givens, mode=config.mode, caps=config.caps)


def is_finished(folder: EvaluationFolder, *, part: Part | None) -> bool:
    """Return whether all puzzles of a part have a result, and summary and digests are written."""
    done = {row.key for row in folder.rows}
    is_done = all(puzzle.key in done for puzzle in part_of_sample(folder.sample, part))
    digests = read_digests(folder.path)  # older evaluations have none
    is_sealed = not digests or SUMMARY_FILE in digests
    return is_done and is_sealed and (folder.path / SUMMARY_FILE).exists()


def evaluate(folder: EvaluationFolder, engine: Engine, *, part: Part | None) -> EvaluationFolder:
    """Evaluate the puzzles without a result, then sort the results and write the summary.

    Results are written on completion; after an interruption, the next call resumes.

    Args:
        folder: Evaluation folder.
        engine: The model.
        part: Part of the puzzles; None for all.

    Returns:
        The folder, opened again.

    Raises:
        ValueError, FloatingPointError: Decoding failed (`eval.engines.contract.Engine.decode`).
        OSError: A file cannot be written.
    """
    _evaluate(EvaluationFolder.open(folder.path), engine, part)
    finished = EvaluationFolder.open(folder.path)
    finished.finish()
    return finished


def _evaluate(folder: EvaluationFolder, engine: Engine, part: Part | None) -> None:
    # `eval score` also writes a summary of unfinished results; remove it.
    (folder.path / SUMMARY_FILE).unlink(missing_ok=True)
    puzzles = part_of_sample(folder.sample, part)
    done = {row.key for row in folder.rows}
    folder.invalidate_digests()
    todo = {puzzle.key: puzzle for puzzle in puzzles if puzzle.key not in done}
    if done:
        logger.info("%d of %d puzzles have a result", len(puzzles) - len(todo), len(puzzles))
    requests = [request_of(folder.board, puzzle, folder.config) for puzzle in todo.values()]
    total = sum(puzzle.cot_length for puzzle in puzzles)
    num_left = sum(puzzle.cot_length for puzzle in todo.values())
    time_left = TimeLeft(
        {puzzle.key: puzzle.cot_length for puzzle in todo.values()},
        max_new_tokens=folder.config.caps.max_new_tokens,
    )
    # The number of solver tokens predicts the remaining time better than the number of puzzles.
    bar = progress(
        "evaluating",
        total=total,
        unit="solver tokens",
        done=total - num_left,
        describe_left=time_left.describe,
    )
    with ResultLog(folder) as log, bar as advance, repeated(partial(advance, 0)):
        meter = _Meter(engine)
        advance(0, detail=f"{len(done):,}/{len(puzzles):,} puzzles")
        for result in engine.decode(time_left.started(requests)):
            puzzle = todo.pop(result.key)
            log.append(ResultRow.of_result(puzzle, result, cost=meter.read()), result.segments)
            time_left.finish(result)
            num_done = len(puzzles) - len(todo)
            advance(puzzle.cot_length, detail=f"{num_done:,}/{len(puzzles):,} puzzles")
    assert not todo, f"no result for {', '.join(todo)}"


class _Meter:
    """Measures the cost of an engine between two reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last = self._spent()

    def read(self) -> Cost:
        now = self._spent()
        since, self._last = now - self._last, now
        return since

    def _spent(self) -> Cost:
        stats = self._engine.stats
        return Cost(
            wall_seconds=time.perf_counter(),
            num_forward_passes=stats.num_forward_passes,
            num_prompt_tokens=stats.num_prompt_tokens,
            num_drafted_tokens=stats.num_drafted_tokens,
            num_accepted_tokens=stats.num_accepted_tokens,
            usd=stats.usd,
        )
