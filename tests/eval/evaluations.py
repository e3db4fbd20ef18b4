"""Evaluation folders with synthetic results, written by the real writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from data.model_format.facts import Mode
from data.model_format.precision import get_precision
from eval.engines.contract import FinishReason, paper_caps
from eval.inspect.streams import solver_stream
from eval.results.folder import EvaluationFolder, ResultLog
from eval.results.records import (
    Cost,
    DataRecord,
    EvaluationConfig,
    ModelRecord,
    ResultRow,
    SampledPuzzle,
    SamplingRecord,
    Session,
    TargetSpread,
)
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from solver.vocabulary import END_OUTPUT, Tokens

LENGTHS = tuple(2**k for k in range(8, 15))


def write_evaluation(
    folder: Path,
    *,
    name: str = "model",
    solve_rates: Sequence[float] = (0.9,) * len(LENGTHS),
    puzzles_per_length: int = 40,
    kind: str = "targets",
    mode: Mode = "scot",
    engine: str = "segment",
    precision: str = "fp32",
    seed: int = 0,
    data_digest: str = "d" * 64,
    failures: Mapping[FinishReason, float] | None = None,
    num_results: int | None = None,
    segments: Mapping[str, tuple[Tokens, ...]] | None = None,
    puzzles: Sequence[SampledPuzzle] | None = None,
    facts: Mapping[str, object] | None = None,
    board: str = "9x9",
) -> EvaluationFolder:
    """Write an evaluation whose puzzles of the i-th length are solved at the i-th rate.

    Args:
        folder: Where to.
        name: Name of the model; its digest follows from it.
        solve_rates: One for each of `LENGTHS`.
        puzzles_per_length: Puzzles for each.
        kind: Kind of sampling.
        mode: Mode of the model.
        engine: Engine.
        precision: Precision policy.
        seed: Seed of training, and of the results.
        data_digest: Digest of the puzzle list.
        failures: Weights of the classes that failures end by.
        num_results: Results to write; all by default.
        segments: Generated ids by key; kept if given.
        puzzles: The sample, instead of an invented one.
        facts: Facts of the model beyond its training.
        board: Board of the puzzles.
    """
    rng = np.random.default_rng(seed)
    sample = invented_sample(puzzles_per_length) if puzzles is None else list(puzzles)
    training = {"num_tokens": 20_000_000_000, "seed": seed, "max_cot_length": 16_384}
    config = EvaluationConfig(
        board=board,
        mode=mode,
        model=ModelRecord(
            name=name,
            digest=name.encode().hex()[:64].ljust(64, "0"),
            model_type="llama",
            num_parameters=19_015_680,
            facts={"training": training, **(facts or {})},
        ),
        data=DataRecord(
            name="sudoku-extreme/test",
            digest=data_digest,
            sample_digest=f"{kind}-{len(sample)}".encode().hex().ljust(64, "0"),
            num_usable=422_786,
            excluded={},
        ),
        sampling=SamplingRecord(
            kind=kind,
            count=puzzles_per_length,
            seed=0,
            targets=LENGTHS if kind == "targets" else (),
        ),
        spreads=tuple(
            TargetSpread(
                target=length,
                num_puzzles=puzzles_per_length,
                min_cot_length=length - 20,
                max_cot_length=length + 20,
                is_sparse=length == LENGTHS[-1],
            )
            for length in LENGTHS
        )
        if kind == "targets"
        else (),
        num_sampled=len(sample),
        caps=paper_caps(mode),
        engine=engine,
        precision=get_precision(precision),
        keeps_tokens=segments is not None,
        sessions=(
            Session(
                started_at="2026-11-28T00:00:00+00:00",
                part=None,
                device="cpu",
                num_slots=64,
                versions={"sudocot": "0.1.0"},
            ),
        ),
    )
    evaluation = EvaluationFolder.create(folder, config, sample)
    weights = failures or {
        FinishReason.WRONG: 2.0,
        FinishReason.LOOP: 1.0,
        FinishReason.SEGMENT_CAP: 1.0,
    }
    shares = np.array(list(weights.values())) / sum(weights.values())
    with ResultLog(evaluation) as log:
        for puzzle in sample[:num_results]:
            rate = solve_rates[_nearest(puzzle.cot_length)]
            is_solved = rng.random() < rate
            failure = list(weights)[rng.choice(len(weights), p=shares)]
            row = ResultRow(
                puzzle=puzzle,
                finish_reason=FinishReason.SOLVED if is_solved else failure,
                num_new_tokens=puzzle.cot_length,
                num_segments=puzzle.cot_length // 512 + 1,
                output=None,
                seconds=0.5,
                cost=Cost(wall_seconds=0.01),
            )
            log.append(row, () if segments is None else segments[puzzle.key])
    evaluation = EvaluationFolder.open(folder)
    if evaluation.is_complete:
        evaluation.finish()
    return evaluation


def invented_sample(puzzles_per_length: int) -> list[SampledPuzzle]:
    """Puzzles with a key and a length each; nothing solves them."""
    return [
        SampledPuzzle(
            key=f"{length:08x}{number:08x}",
            givens="." * 81,
            cot_length=length + number % 21 - 10,
            rating=float(number),
            groups={"cot_length": f"{length}", "target": str(length)},
        )
        for length in LENGTHS
        for number in range(puzzles_per_length)
    ]


def _nearest(cot_length: int) -> int:
    return int(np.argmin([abs(cot_length - length) for length in LENGTHS]))


def write_wrong_evaluation(folder: Path, *, name: str = "wrong") -> EvaluationFolder:
    """Write an evaluation of one 4x4 puzzle whose kept tokens leave the solver's after five."""
    board, givens = parse_puzzle("1...|..3.|.4..|...2")
    ids = solver_stream(board, givens, segment_tokens=None).ids
    generated = ids[2 * np.count_nonzero(givens) + 2 :].copy()
    generated[5] = END_OUTPUT
    puzzle = SampledPuzzle(
        key=f"{puzzle_id(board, givens[np.newaxis])[0]:016x}",
        givens=format_grid(board, givens),
        cot_length=len(ids),
        rating=None,
        groups={"cot_length": "1"},
    )
    return write_evaluation(
        folder,
        name=name,
        solve_rates=(0.0,) * len(LENGTHS),
        kind="all",
        mode="cot",
        segments={puzzle.key: (generated[:6],)},
        puzzles=[puzzle],
        board="4x4",
    )
