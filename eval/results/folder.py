"""Evaluation folder: the input of all reports.

    evaluation.json    settings, model, data and sessions (`EvaluationConfig`); written after the
                       sample, so that its presence marks a complete sample
    sample.jsonl       puzzles to evaluate, one per line, sorted by key
    results.jsonl      one line per finished puzzle, appended on completion
    tokens.jsonl       optional: generated ids of each puzzle, compressed
    replies.jsonl      for models that write text: replies, appended on arrival
    summary.json       written at the end: accuracy and other statistics of the files above
    certificates.json  optional: written by `sudocot eval certify`
    SHA256SUMS         digests of the files of a finished evaluation

Lines are appended by `data.runtime.line_log`; a puzzle with an incomplete line is evaluated again.
At the end, the lines are sorted by key, so that the files do not depend on the order of completion.
"""

from __future__ import annotations

import base64
import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from data.runtime.digests import DIGESTS_FILE, check_digests, read_digests, write_digests
from data.runtime.files import publish_file, to_json
from data.runtime.line_log import LineLog, publish_lines, read_lines
from data.runtime.schema import from_plain, read_record
from eval.engines.text.replies import REPLIES_FILE, sort_replies
from eval.results.certificates import CERTIFICATES_FILE, Certificates, write_certificates
from eval.results.records import (
    SCHEMA,
    EvaluationConfig,
    ResultRow,
    SampledPuzzle,
    stored_fields,
)
from eval.results.summary import Summary, summarize
from solver.boards import Board, get_board
from solver.vocabulary import Tokens, Vocabulary

CONFIG_FILE = "evaluation.json"
SAMPLE_FILE = "sample.jsonl"
RESULTS_FILE = "results.jsonl"
TOKENS_FILE = "tokens.jsonl"
SUMMARY_FILE = "summary.json"
_DIGESTED_FILES = (
    CONFIG_FILE,
    SAMPLE_FILE,
    RESULTS_FILE,
    TOKENS_FILE,
    REPLIES_FILE,
    SUMMARY_FILE,
    CERTIFICATES_FILE,
)

logger = logging.getLogger(__name__)


class EvaluationFolder:
    """A finished or unfinished evaluation; files are read on first use."""

    def __init__(self, path: Path, config: EvaluationConfig) -> None:
        self.path = path
        self.config = config

    @classmethod
    def open(cls, path: str | Path) -> EvaluationFolder:
        """Open a folder.

        Raises:
            FileNotFoundError: The folder contains no evaluation.
            ValueError: The evaluation is damaged or of an unsupported version.
        """
        path = Path(path)
        file = path / CONFIG_FILE
        if not file.is_file():
            raise FileNotFoundError(f"{path}: no {CONFIG_FILE}, not an evaluation folder")
        check_digests(path, (CONFIG_FILE,))
        return cls(path, read_record(file, EvaluationConfig, schema=SCHEMA))

    @classmethod
    def create(
        cls, path: Path, config: EvaluationConfig, sample: Iterable[SampledPuzzle]
    ) -> EvaluationFolder:
        """Write the sample, then the settings."""
        path.mkdir(parents=True, exist_ok=True)
        records = ({"schema": SCHEMA, **asdict(puzzle)} for puzzle in sample)
        (path / DIGESTS_FILE).unlink(missing_ok=True)  # of a session killed before its settings
        publish_lines(path / SAMPLE_FILE, records)
        folder = cls(path, config)
        folder.write_config(config)
        return folder

    def write_config(self, config: EvaluationConfig) -> None:
        """Replace the settings, for instance to add a session."""
        self.invalidate_digests()
        self.config = config
        publish_file(self.path / CONFIG_FILE, to_json(config.to_json()))

    @property
    def board(self) -> Board:
        """Board of the puzzles."""
        return get_board(self.config.board)

    @cached_property
    def sample(self) -> tuple[SampledPuzzle, ...]:
        """All puzzles of the evaluation, including those of other parts, by key."""
        path = self.path / SAMPLE_FILE
        check_digests(self.path, (SAMPLE_FILE,))
        return tuple(read_lines(path, partial(from_plain, SampledPuzzle, schema=SCHEMA)))

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """Results so far, by key.

        Raises:
            ValueError: A line is malformed, or a puzzle is repeated or not in the sample.
        """
        path = self.path / RESULTS_FILE
        check_digests(self.path, (RESULTS_FILE,))
        rows: dict[str, ResultRow] = {}
        keys = {puzzle.key for puzzle in self.sample}
        read = partial(ResultRow.from_json, board=self.config.board)
        for row in read_lines(path, read) if path.exists() else ():
            if row.key in rows or row.key not in keys:
                what = "is repeated" if row.key in rows else "is not in the sample"
                raise ValueError(f"{path}: puzzle {row.key} {what}")
            rows[row.key] = row
        return tuple(rows[key] for key in sorted(rows))

    @property
    def is_complete(self) -> bool:
        """Whether every puzzle of the sample has a result."""
        return len(self.rows) == self.config.num_sampled

    @property
    def summary(self) -> Summary:
        """Statistics of the results so far."""
        return summarize(self.config, self.rows)

    @property
    def summary_record(self) -> dict[str, Any]:
        """Content of `summary.json`."""
        return asdict(self.summary, dict_factory=stored_fields)

    def generated(self, keys: Iterable[str]) -> dict[str, tuple[Tokens, ...]]:
        """Read the stored generated ids of puzzles, by key and segment."""
        path, requested = self.path / TOKENS_FILE, set(keys)
        check_digests(self.path, (TOKENS_FILE,))

        def read(record: dict[str, Any]) -> tuple[str, tuple[Tokens, ...] | None]:
            key = record["key"]
            return key, _unpack(record, board=self.board) if key in requested else None

        items = read_lines(path, read) if path.exists() else ()
        return {key: segments for key, segments in items if segments is not None}

    def finish(self) -> None:
        """Sort all files by key and write the summary; idempotent."""
        self.replace_rows(self.rows)
        path = self.path / TOKENS_FILE
        if path.exists():
            # A kill between the two writes leaves tokens without a row, which are written again.
            latest = dict(read_lines(path, lambda record: (record["key"], record)))
            kept = [latest[row.key] for row in self.rows if row.key in latest]
            if len(kept) < len(self.rows):  # a system crash may lose tokens but keep their row
                num_lost = len(self.rows) - len(kept)
                logger.warning("%s: the tokens of %d puzzles are lost", path, num_lost)
            publish_lines(path, kept)
        sort_replies(self.path)
        publish_file(self.path / SUMMARY_FILE, to_json(self.summary_record))
        write_digests(self.path, _DIGESTED_FILES)

    def invalidate_digests(self) -> None:
        """Invalidate the digests of all files except the sample, before they change.

        Raises:
            ValueError: The sample does not match its digest.
        """
        check_digests(self.path, (SAMPLE_FILE,))
        write_digests(self.path, (SAMPLE_FILE,))

    def write_certificates(self, certificates: Certificates) -> None:
        """Write the certificates, and their digest if the evaluation is finished.

        Raises:
            ValueError: Another file does not match its digest.
        """
        others = read_digests(self.path).keys() - {CERTIFICATES_FILE}
        check_digests(self.path, others)
        write_digests(self.path, others)
        write_certificates(self.path, certificates)
        if SUMMARY_FILE in others:
            write_digests(self.path, {*others, CERTIFICATES_FILE})

    def replace_rows(self, rows: Sequence[ResultRow]) -> None:
        """Rewrite all results, sorted by key."""
        self.invalidate_digests()
        rows = sorted(rows, key=lambda row: row.key)
        publish_lines(self.path / RESULTS_FILE, (row.to_json() for row in rows))
        self.__dict__["rows"] = tuple(rows)


class ResultLog:
    """Context manager that appends results to an evaluation folder."""

    def __init__(self, folder: EvaluationFolder) -> None:
        self._results = LineLog(folder.path / RESULTS_FILE)
        self._tokens = LineLog(folder.path / TOKENS_FILE) if folder.config.keeps_tokens else None
        self._files = ExitStack()

    def __enter__(self) -> ResultLog:
        """Open the files."""
        for log in (self._tokens, self._results):
            if log is not None:
                self._files.enter_context(log)
        return self

    def __exit__(self, *error: Any) -> None:
        """Sync and close the files."""
        self._files.close()

    def append(self, row: ResultRow, segments: Sequence[Tokens]) -> None:
        """Append a result, after its tokens if they are stored."""
        if self._tokens is not None:
            self._tokens.append({"schema": SCHEMA, "key": row.key, **_pack(segments)})
        self._results.append(row.to_json())


def _pack(segments: Sequence[Tokens]) -> dict[str, Any]:
    ids = np.concatenate(segments).astype("<u2")
    packed = base64.b64encode(zlib.compress(ids.tobytes())).decode()
    return {"segment_lengths": [len(segment) for segment in segments], "zlib_u16": packed}


def _unpack(record: dict[str, Any], *, board: Board) -> tuple[Tokens, ...]:
    ids = np.frombuffer(zlib.decompress(base64.b64decode(record["zlib_u16"])), dtype="<u2")
    ends = np.cumsum(record["segment_lengths"])
    return tuple(np.split(ids.astype(Vocabulary(board).dtype), ends[:-1]))
