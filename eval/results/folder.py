"""The folder of an evaluation, which every report is made from.

    evaluation.json   settings, model, data, sessions (`EvaluationConfig`); its being there means
                      that the sample is complete
    sample.jsonl      the puzzles to evaluate, ordered by key, one a line
    results.jsonl     one line for each puzzle that ended, appended as it ends
    tokens.jsonl      on request: the generated ids of each puzzle, compressed
    summary.json      once all are done: accuracy and all else that follows from the above

A line is written in one piece and synced within `SYNC_EVERY_S`. A line that a kill cut short is
dropped, and its puzzle evaluated again. When all puzzles are done the lines are put in the order
of the keys, so that the file does not depend on the order in which puzzles ended.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from data.model_format.facts import read_json
from data.runtime.files import publish_file, staged_file, to_json
from eval.results.records import SCHEMA, EvaluationConfig, ResultRow, SampledPuzzle, check_schema
from eval.results.summary import Summary, summarise
from solver.boards import Board, get_board
from solver.vocabulary import Tokens, Vocabulary

CONFIG_FILE = "evaluation.json"
SAMPLE_FILE = "sample.jsonl"
RESULTS_FILE = "results.jsonl"
TOKENS_FILE = "tokens.jsonl"
SUMMARY_FILE = "summary.json"
SYNC_EVERY_S = 30.0
"""Longest time for which a crash of the machine, not of the program, can lose results."""

_Item = TypeVar("_Item")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, zlib.error)
"""What reading a line that is not ours can raise."""

logger = logging.getLogger(__name__)


class EvaluationFolder:
    """Results that are there, finished or not; files are read when they are first used."""

    def __init__(self, path: Path, config: EvaluationConfig) -> None:
        self.path = path
        self.config = config

    @classmethod
    def open(cls, path: str | Path) -> EvaluationFolder:
        """Open a folder.

        Raises:
            FileNotFoundError: no evaluation there.
            ValueError: one of another version, or a damaged one.
        """
        path = Path(path)
        file = path / CONFIG_FILE
        if not file.is_file():
            raise FileNotFoundError(f"{path}: no {CONFIG_FILE}, not an evaluation")
        return cls(path, _checked(EvaluationConfig.from_json, read_json(file), place=str(file)))

    @classmethod
    def create(
        cls, path: Path, config: EvaluationConfig, sample: Iterable[SampledPuzzle]
    ) -> EvaluationFolder:
        """Write the sample and the settings, the latter last."""
        path.mkdir(parents=True, exist_ok=True)
        lines = (_line({"schema": SCHEMA, **asdict(puzzle)}) for puzzle in sample)
        _publish_lines(path / SAMPLE_FILE, lines)
        folder = cls(path, config)
        folder.write_config(config)
        return folder

    def write_config(self, config: EvaluationConfig) -> None:
        """Replace the settings, to add a session."""
        self.config = config
        publish_file(self.path / CONFIG_FILE, to_json(config.to_json()))

    @property
    def board(self) -> Board:
        """Board of the puzzles."""
        return get_board(self.config.board)

    @cached_property
    def sample(self) -> tuple[SampledPuzzle, ...]:
        """All puzzles to evaluate, those of other parts included, by key."""
        path = self.path / SAMPLE_FILE
        return tuple(_items(path, lambda record: SampledPuzzle(**without_schema(record))))

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """Results so far, by key.

        Raises:
            ValueError: a damaged line, a puzzle twice, or one that is not of the sample.
        """
        path = self.path / RESULTS_FILE
        rows: dict[str, ResultRow] = {}
        keys = {puzzle.key for puzzle in self.sample}
        read = partial(ResultRow.from_json, board=self.config.board)
        for row in _items(path, read) if path.exists() else ():
            if row.key in rows or row.key not in keys:
                what = "is there twice" if row.key in rows else "is not in the sample"
                raise ValueError(f"{path}: puzzle {row.key} {what}")
            rows[row.key] = row
        return tuple(rows[key] for key in sorted(rows))

    @property
    def is_complete(self) -> bool:
        """Whether every puzzle of the sample has a result."""
        return len(self.rows) == self.config.num_sampled

    @property
    def summary(self) -> Summary:
        """Accuracy and all else that follows from settings and rows, finished or not."""
        return summarise(self.config, self.rows)

    def generated(self, keys: Iterable[str]) -> dict[str, tuple[Tokens, ...]]:
        """Read the generated ids of puzzles whose tokens were kept, segment by segment."""
        path, wanted = self.path / TOKENS_FILE, set(keys)

        def read(record: dict[str, Any]) -> tuple[str, tuple[Tokens, ...] | None]:
            key = record["key"]
            return key, _unpack(record, board=self.board) if key in wanted else None

        items = _items(path, read) if path.exists() else ()
        return {key: segments for key, segments in items if segments is not None}

    def finish(self) -> None:
        """Order the lines by key and write the summary; the same bytes if done twice."""
        self.replace_rows(self.rows)
        path = self.path / TOKENS_FILE
        if path.exists():
            # A kill between the two files leaves tokens without a row: they were written again.
            latest = dict(_items(path, lambda record: (record["key"], record)))
            kept = [latest[row.key] for row in self.rows if row.key in latest]
            if len(kept) < len(self.rows):  # A crash of the machine can keep a row without them.
                num_lost = len(self.rows) - len(kept)
                logger.warning("%s: the tokens of %d puzzles are lost", path, num_lost)
            _publish_lines(path, map(_line, kept))
        publish_file(self.path / SUMMARY_FILE, to_json(asdict(self.summary)))

    def replace_rows(self, rows: Sequence[ResultRow]) -> None:
        """Write all results anew, by key."""
        rows = sorted(rows, key=lambda row: row.key)
        _publish_lines(self.path / RESULTS_FILE, (_line(row.to_json()) for row in rows))
        self.__dict__["rows"] = tuple(rows)


class ResultLog:
    """Appends results to a folder; a context manager."""

    def __init__(self, folder: EvaluationFolder) -> None:
        self._paths = [folder.path / RESULTS_FILE]
        if folder.config.keeps_tokens:
            self._paths.insert(0, folder.path / TOKENS_FILE)

    def __enter__(self) -> ResultLog:
        """Open the files, without the half lines that a killed session may have left."""
        for path in self._paths:
            content = path.read_bytes() if path.exists() else b""
            if not content.endswith(b"\n") and content:
                os.truncate(path, content.rfind(b"\n") + 1)
        # Unbuffered: what is written is the system's, and no close can fail for a full disk.
        self._files = [path.open("ab", buffering=0) for path in self._paths]
        self._synced_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Sync and close the files."""
        self._sync()
        for file in self._files:
            file.close()

    def append(self, row: ResultRow, segments: Sequence[Tokens]) -> None:
        """Append a result, after its tokens if they are kept."""
        lines = [_line(row.to_json())]
        if len(self._files) == 2:
            lines.insert(0, _line({"schema": SCHEMA, "key": row.key, **_pack(segments)}))
        for file, line in zip(self._files, lines, strict=True):
            rest = memoryview(line)
            while rest:
                rest = rest[file.write(rest) :]
        if time.monotonic() - self._synced_s >= SYNC_EVERY_S:
            self._sync()

    def _sync(self) -> None:
        for file in self._files:
            os.fsync(file.fileno())
        self._synced_s = time.monotonic()


def without_schema(record: dict[str, Any]) -> dict[str, Any]:
    """Check the version of a JSON object and take it off."""
    check_schema(record)
    return {name: value for name, value in record.items() if name != "schema"}


def _pack(segments: Sequence[Tokens]) -> dict[str, Any]:
    ids = np.concatenate(segments).astype("<u2")
    packed = base64.b64encode(zlib.compress(ids.tobytes())).decode()
    return {"segment_lengths": [len(segment) for segment in segments], "zlib_u16": packed}


def _unpack(record: dict[str, Any], *, board: Board) -> tuple[Tokens, ...]:
    ids = np.frombuffer(zlib.decompress(base64.b64decode(record["zlib_u16"])), dtype="<u2")
    ends = np.cumsum(record["segment_lengths"])
    return tuple(np.split(ids.astype(Vocabulary(board).dtype), ends[:-1]))


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _publish_lines(path: Path, lines: Iterable[bytes]) -> None:
    with staged_file(path) as staged, staged.open("wb") as file:
        file.writelines(lines)


def _items(path: Path, read: Callable[[dict[str, Any]], _Item]) -> Iterator[_Item]:
    """Read the whole lines of a file, one after another; a last one that was cut is left out."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                place = f"{path}:{number}"
                yield _checked(read, _checked(json.loads, line, place=place), place=place)


def _checked(read: Callable[[Any], _Item], value: Any, *, place: str) -> _Item:
    try:
        return read(value)
    except _DAMAGE as error:
        raise ValueError(f"{place}: not what sudocot writes: {error}") from error
