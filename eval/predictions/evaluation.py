"""Creates evaluation folders from imported predictions, as those of `sudocot eval run`."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from data.model_format.precision import UNKNOWN_PRECISION
from data.runtime.code_commit import code_commit
from data.runtime.files import staged_directory
from eval.engines.contract import AnswerFacts, Caps, FinishReason
from eval.engines.puzzle_run import output_block
from eval.engines.text.engine import PuzzleScore, score_replies
from eval.engines.text.replies import ReplyLog, StoredReply
from eval.predictions.records import Prediction, PredictionFile
from eval.results.folder import EvaluationFolder, ResultLog
from eval.results.records import (
    IMPORT_ENGINE,
    Cost,
    DataRecord,
    EvaluationConfig,
    ModelRecord,
    ProtocolRecord,
    ResultRow,
    SampledPuzzle,
    SamplingRecord,
    Session,
    TargetSpread,
)
from eval.sampling.pool import open_pool
from eval.sampling.selection import SamplingConfig, draw_sample
from eval.text_protocol.prompt import VERSION, TextProtocol
from eval.text_protocol.score import count_right_cells, score_grid
from solver.boards import Board
from solver.mrv.tracer import trace
from solver.puzzles import format_grid, puzzle_id


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportCounts:
    """Number of rows by outcome; the sum is the number of all rows."""

    num_results: int
    """Rows that became results."""
    num_duplicates: int
    """Rows that repeat a puzzle with the same answer."""
    num_outside: int
    """Rows of puzzles that are not in the cohort or have no unique solution."""
    num_errors: int
    """Rows without a readable puzzle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cohort:
    puzzles: tuple[SampledPuzzle, ...]
    data: DataRecord
    sampling: SamplingRecord
    spreads: tuple[TargetSpread, ...]


def import_predictions(
    file: PredictionFile,
    out: Path,
    *,
    name: str,
    source: str,
    num_parameters: int | None = None,
    like: EvaluationFolder | None = None,
) -> tuple[EvaluationFolder, ImportCounts]:
    """Score predictions and write them as a finished evaluation.

    Args:
        file: The predictions.
        out: Output folder.
        name: Name of the model.
        source: Name of the file, used as name of the data if `like` is None.
        num_parameters: Number of parameters of the model, if known.
        like: Evaluation whose puzzles form the cohort; all puzzles of the file if None.

    Raises:
        ValueError: A puzzle has different answers, or a puzzle of the cohort has no prediction.
        FileExistsError: `out` exists.
    """
    by_key, num_duplicates = _by_key(file)
    cohort = _cohort_of_file(file.board, by_key, source) if like is None else _cohort_like(like)
    if like is not None and like.config.board != file.board.name:
        raise ValueError(
            f"like: got an evaluation of {like.config.board} boards, the predictions are of "
            f"{file.board.name}"
        )
    missing = [puzzle.key for puzzle in cohort.puzzles if puzzle.key not in by_key]
    if missing:
        raise ValueError(
            f"{source}: no prediction for {len(missing)} of {len(cohort.puzzles)} puzzles of the "
            f"cohort, the first is {missing[0]}"
        )
    config = _config(file, cohort, name=name, num_parameters=num_parameters)
    with staged_directory(out, replace=False) as staged:
        folder = EvaluationFolder.create(staged, config, cohort.puzzles)
        _write_results(folder, by_key)
        folder.finish()
    num_results = len(cohort.puzzles)
    return EvaluationFolder.open(out), ImportCounts(
        num_results=num_results,
        num_duplicates=num_duplicates,
        num_outside=len(by_key) - num_results,
        num_errors=len(file.errors),
    )


def _by_key(file: PredictionFile) -> tuple[dict[str, Prediction], int]:
    """Return the predictions by puzzle hash, and the number of duplicates."""
    ids = puzzle_id(file.board, np.array([row.givens for row in file.predictions]))
    by_key: dict[str, Prediction] = {}
    for number, row in zip(ids.tolist(), file.predictions, strict=True):
        first = by_key.setdefault(f"{number:016x}", row)
        if _content(first) != _content(row):
            raise ValueError(f"{row.where}: another answer to the puzzle of {first.where}")
    return by_key, len(file.predictions) - len(by_key)


def _content(row: Prediction) -> tuple[object, object]:
    return row.reply, None if row.answer is None else row.answer.tobytes()


def _cohort_like(like: EvaluationFolder) -> _Cohort:
    config = like.config
    return _Cohort(
        puzzles=like.sample,
        data=config.data,
        sampling=config.sampling,
        spreads=config.spreads,
    )


def _cohort_of_file(board: Board, by_key: Mapping[str, Prediction], source: str) -> _Cohort:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "puzzles.csv"
        lines = [format_grid(board, by_key[key].givens) for key in sorted(by_key)]
        path.write_text("\n".join(["puzzle", *lines, ""]))
        pool = open_pool((str(path),), board=board.name, lengths=Path(folder) / "lengths.parquet")
        try:
            sample = draw_sample(pool, SamplingConfig(sample="all"))
        except ValueError:
            raise ValueError(
                f"{source}: got {len(by_key)} puzzles without a unique solution, allowed is at "
                "least one with"
            ) from None
    return _Cohort(
        puzzles=sample.puzzles,
        data=replace(sample.data, name=source),
        sampling=sample.record,
        spreads=(),
    )


def _config(
    file: PredictionFile, cohort: _Cohort, *, name: str, num_parameters: int | None
) -> EvaluationConfig:
    is_text = file.num_shots is not None
    num_tokens = max(1, *(row.num_new_tokens for row in file.predictions))
    commit = code_commit()
    return EvaluationConfig(
        board=file.board.name,
        mode="text" if is_text else "grid",
        model=ModelRecord(
            name=name,
            digest=hashlib.sha256(f"import {name}".encode()).hexdigest(),
            model_type="imported",
            num_parameters=num_parameters,
            facts={},
        ),
        data=cohort.data,
        sampling=cohort.sampling,
        spreads=cohort.spreads,
        num_sampled=len(cohort.puzzles),
        caps=Caps(max_new_tokens=num_tokens, max_segment_tokens=num_tokens),
        engine=IMPORT_ENGINE,
        precision=UNKNOWN_PRECISION,
        protocol=_protocol(file),
        sessions=(
            Session(
                started_at=datetime.now(UTC).isoformat(timespec="seconds"),
                part=None,
                device="-",
                num_slots=1,
                versions={"sudocot": version("sudocot"), **({"commit": commit} if commit else {})},
            ),
        ),
    )


def _protocol(file: PredictionFile) -> ProtocolRecord | None:
    if file.num_shots is None:
        return None
    return ProtocolRecord(
        version=VERSION,
        digest=TextProtocol(board=file.board, num_shots=file.num_shots).digest,
        num_shots=file.num_shots,
        form="chat",
        num_samples=1,
        temperature=None,
        top_p=None,
        seed=None,
    )


def _write_results(folder: EvaluationFolder, by_key: Mapping[str, Prediction]) -> None:
    is_text = folder.config.protocol is not None
    replies = ReplyLog(folder.path) if is_text else None
    with replies or nullcontext(), ResultLog(folder) as log:
        for puzzle in folder.sample:
            row = by_key[puzzle.key]
            stored = _stored(row, key=puzzle.key)
            if replies is not None and stored is not None:
                replies.append(stored)
            score = _score(folder.board, row, [] if stored is None else [stored])
            result = ResultRow(
                puzzle=puzzle,
                finish_reason=score.finish_reason,
                num_new_tokens=row.num_new_tokens,
                num_segments=1,
                output=score.output,
                seconds=row.seconds,
                cost=Cost(
                    wall_seconds=row.seconds,
                    num_prompt_tokens=row.num_prompt_tokens,
                    usd=row.usd,
                ),
                answer=score.answer,
            )
            log.append(result, ())


def _stored(row: Prediction, *, key: str) -> StoredReply | None:
    if row.reply is None:
        return None
    return StoredReply(
        key=key,
        sample=0,
        reply=row.reply,
        num_prompt_tokens=row.num_prompt_tokens,
        num_new_tokens=row.num_new_tokens,
        seconds=row.seconds,
        usd=row.usd,
    )


def _score(board: Board, row: Prediction, replies: Sequence[StoredReply]) -> PuzzleScore:
    if replies:
        return score_replies(board, row.givens, replies)
    solution = trace(board, row.givens).solution
    assert solution is not None
    finish_reason = FinishReason.MALFORMED
    if row.answer is not None:
        finish_reason = FinishReason(score_grid(board, row.givens, row.answer))
    return PuzzleScore(
        finish_reason=finish_reason,
        output=None if row.answer is None else output_block(board, row.answer),
        answer=AnswerFacts(
            lenient=finish_reason,
            num_right_cells=count_right_cells(board, row.givens, row.answer, solution),
            num_blank_cells=int((row.givens == 0).sum()),
            num_solved_samples=int(finish_reason is FinishReason.SOLVED),
        ),
    )
