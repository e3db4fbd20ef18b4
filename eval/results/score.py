"""Scores stored results again, without the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from data.runtime.locks import locked_folder
from eval.engines.contract import FinishReason
from eval.engines.puzzle_run import read_output, score_output
from eval.engines.text.engine import score_replies
from eval.engines.text.replies import StoredReply, read_replies
from eval.results.folder import EvaluationFolder
from eval.results.records import ResultRow
from eval.results.runner import request_of
from eval.text_protocol.score import score_grid

Replies = dict[tuple[str, int], StoredReply]


def rescore(folder: EvaluationFolder) -> list[tuple[ResultRow, ResultRow]]:
    """Score all output blocks again, then rewrite the results and the summary.

    Rows without an output block (loops, token limits) do not change.

    Returns:
        Changed rows, before and after.

    Raises:
        ValueError: The folder is damaged, or locked by another process.
    """
    with locked_folder(folder.path):
        pairs = list(rescored_rows(folder))
        changes = [(old, new) for old, new in pairs if old.finish_reason is not new.finish_reason]
        folder.replace_rows([new for _, new in pairs])
        folder.finish()
    return changes


def rescored_rows(folder: EvaluationFolder) -> Iterator[tuple[ResultRow, ResultRow]]:
    """Yield each row as stored and as scored again.

    Raises:
        ValueError: A row is damaged.
    """
    replies = read_replies(folder.path)
    for row in folder.rows:
        yield row, _score(folder, row, replies)


def _score(folder: EvaluationFolder, row: ResultRow, replies: Replies) -> ResultRow:
    if folder.config.protocol is not None:
        return _score_replies(folder, row, replies)
    if row.output is None:
        if row.finish_reason in (FinishReason.SOLVED, FinishReason.WRONG):
            raise ValueError(
                f"{folder.path}: puzzle {row.key}: {row.finish_reason} without an output"
            )
        return row
    request = request_of(folder.board, row.puzzle, folder.config)
    if folder.config.mode == "grid":
        grid = read_output(request, row.output)
        if grid is None:
            raise ValueError(f"{folder.path}: puzzle {row.key}: malformed output")
        return replace(
            row, finish_reason=FinishReason(score_grid(folder.board, request.givens, grid))
        )
    return replace(row, finish_reason=score_output(request, row.output))


def _score_replies(folder: EvaluationFolder, row: ResultRow, replies: Replies) -> ResultRow:
    assert folder.config.protocol is not None
    samples = range(folder.config.protocol.num_samples)
    missing = [sample for sample in samples if (row.key, sample) not in replies]
    if missing:
        raise ValueError(f"{folder.path}: puzzle {row.key}: no reply for sample {missing[0]}")
    givens = request_of(folder.board, row.puzzle, folder.config).givens
    score = score_replies(folder.board, givens, [replies[row.key, k] for k in samples])
    return replace(row, finish_reason=score.finish_reason, output=score.output, answer=score.answer)
