"""Scoring results again from their output blocks, without the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from data.runtime.locks import locked_folder
from eval.engines.contract import EndedBy
from eval.engines.puzzle_run import read_output, score_output
from eval.engines.text.engine import score_replies
from eval.engines.text.replies import StoredReply, read_replies
from eval.results.folder import EvaluationFolder
from eval.results.records import ResultRow
from eval.results.runner import request_of
from eval.text_protocol.score import score_grid

Replies = dict[tuple[str, int], StoredReply]


def score_again(folder: EvaluationFolder) -> list[tuple[ResultRow, ResultRow]]:
    """Judge every output block anew, then write the results and the summary.

    What ended without an output block is left as it is: loops, caps, the end of the positions.

    Returns:
        The rows that changed, before and after.

    Raises:
        ValueError: a damaged folder, or one that another process is evaluating.
    """
    with locked_folder(folder.path):
        pairs = list(rescored(folder))
        changes = [(old, new) for old, new in pairs if old.ended_by is not new.ended_by]
        folder.replace_rows([new for _, new in pairs])
        folder.finish()
    return changes


def rescored(folder: EvaluationFolder) -> Iterator[tuple[ResultRow, ResultRow]]:
    """Yield each row as it stands and as its output is scored now.

    Raises:
        ValueError: a row is damaged.
    """
    replies = read_replies(folder.path)
    for row in folder.rows:
        yield row, _score(folder, row, replies)


def _score(folder: EvaluationFolder, row: ResultRow, replies: Replies) -> ResultRow:
    if folder.config.protocol is not None:
        return _score_replies(folder, row, replies)
    if row.output is None:
        if row.ended_by in (EndedBy.SOLVED, EndedBy.WRONG):
            raise ValueError(f"{folder.path}: puzzle {row.key}: {row.ended_by} without an output")
        return row
    request = request_of(folder.board, row.puzzle, folder.config)
    if folder.config.mode == "grid":
        grid = read_output(request, row.output)
        assert grid is not None, row.key
        return replace(row, ended_by=EndedBy(score_grid(folder.board, request.givens, grid)))
    return replace(row, ended_by=score_output(request, row.output))


def _score_replies(folder: EvaluationFolder, row: ResultRow, replies: Replies) -> ResultRow:
    assert folder.config.protocol is not None
    samples = range(folder.config.protocol.num_samples)
    missing = [sample for sample in samples if (row.key, sample) not in replies]
    if missing:
        raise ValueError(f"{folder.path}: puzzle {row.key}: no reply for sample {missing[0]}")
    givens = request_of(folder.board, row.puzzle, folder.config).givens
    score = score_replies(folder.board, givens, [replies[row.key, k] for k in samples])
    return replace(row, ended_by=score.ended_by, output=score.output, answer=score.answer)
