"""Comparison of the compiled 9x9 solver with the solver: `python -m scripts.bench.compiled_sudoku`.

Compares the SCoT of public puzzles, evenly spaced in each file and interleaved over files. Every
third puzzle is decoded autoregressively, segment by segment from the givens; for the others, the
model reads each segment in one forward pass and its prediction after each prefix is compared. All
tokens must be equal.

Each finished puzzle is one line of `--log`; the same command resumes after the last one. Speeds
are in CPU time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tyro

from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import CompiledSudoku, compile_sudoku, generate_segments
from data.runtime.progress import progress
from data.segments import split_into_segments
from scripts.bench.harness import Report, load_grids, shared_puzzles
from solver.boards import Board, Grid
from solver.mrv.tracer import trace

Segment = tuple[npt.NDArray[np.int32], int]
_DECODED_EVERY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compare tokens. SUDOCOT_SHARED names the folder with the public puzzle lists."""

    tokens: int = 10_000_000
    """Number of tokens to compare; the last puzzle is completed."""
    min_length: int = 1
    """Minimum CoT length; if given, all puzzles are decoded autoregressively."""
    max_length: int = 200_000
    """Maximum CoT length."""
    segment_tokens: int = 512
    """Trace tokens per SCoT segment."""
    bits: int = 11
    """Number of position bits r."""
    log: Path = Path("compiled_sudoku.jsonl")
    """Results: the settings, then one line per puzzle; puzzles in it are not repeated."""
    out: Path | None = None
    """JSON file to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One puzzle."""

    file: str
    number: int
    """Index in the file."""
    is_decoded: bool
    """Whether it was decoded autoregressively."""
    num_segments: int
    num_tokens: int
    """Compared tokens, without prompts."""
    num_read: int
    """Tokens including prompts."""
    num_wrong: int
    seconds: float
    """CPU time of the transformer."""
    least_gap: int
    """Smallest gap between the top two attention scores, so far in this run."""


def main(config: Config) -> int:
    """Compare; return 0 if all tokens are equal, else 1."""
    rows = _read_log(config)
    done = {(row.file, row.number) for row in rows}
    compiled = compile_sudoku(
        BOARDS["9x9"], mode="scot", bits=config.bits, segment_tokens=config.segment_tokens
    )
    model = SparseTransformer.from_program(compiled.program)
    num_done = sum(row.num_tokens for row in rows)
    with (
        config.log.open("a") as log,
        progress("comparing", total=config.tokens, unit="tokens", done=num_done) as advance,
    ):
        for turn, (file, number, board, givens) in enumerate(_puzzles()):
            if sum(row.num_tokens for row in rows) >= config.tokens:
                break
            if (file, number) in done:
                continue
            segments = _segments(
                board, givens, config.segment_tokens, config.min_length, config.max_length
            )
            if not segments:
                continue
            is_decoded = config.min_length > 1 or turn % _DECODED_EVERY == 0
            row = _compare(model, compiled, givens, segments, (file, number), is_decoded)
            rows.append(row)
            log.write(json.dumps(asdict(row)) + "\n")
            log.flush()
            advance(row.num_tokens)
    _report(config, compiled, rows)
    return 1 if any(row.num_wrong for row in rows) else 0


def _read_log(config: Config) -> list[Row]:
    """Read the results in the log, whose first line has the settings; a new log is started.

    Raises:
        ValueError: The log has results with other settings.
    """
    names = ("min_length", "max_length", "segment_tokens", "bits")
    settings = {name: getattr(config, name) for name in names}
    if not config.log.exists():
        config.log.write_text(json.dumps(settings) + "\n")
    first, *lines = config.log.read_text().splitlines()
    if json.loads(first) != settings:
        raise ValueError(f"log: {config.log} has results with {first}, allowed is another file")
    return [Row(**json.loads(line)) for line in lines]


def _puzzles() -> Iterator[tuple[str, int, Board, Grid]]:
    """Yield evenly spaced puzzles, at most 1,000 per file, interleaved over files."""
    files = [(path.name, *load_grids(path)) for path in shared_puzzles()]
    for turn in range(1_000):
        for name, board, grids in files:
            number = turn * max(1, len(grids) // 1_000)
            if number < len(grids):
                yield name, number, board, grids[number]


def public_segments(segment_tokens: int) -> Iterator[list[Segment]]:
    """Yield the solver's segments of public puzzles."""
    for _, _, board, givens in _puzzles():
        yield _segments(board, givens, segment_tokens, 1, 200_000)


def _segments(
    board: Board, givens: Grid, segment_tokens: int, min_length: int, max_length: int
) -> list[Segment]:
    """Return the solver's segments and prompt lengths; empty if the CoT length is out of range."""
    result = trace(board, givens, max_tokens=max_length)
    if result.solution is None or len(result.tokens) < min_length:
        return []
    parts = split_into_segments(
        board,
        result.tokens,
        np.array([len(result.tokens)]),
        segment_tokens=segment_tokens,
    )
    ids = np.split(parts.tokens.astype(np.int32), parts.ends[:-1])
    return list(zip(ids, parts.prompt_lengths.tolist(), strict=True))


def _compare(
    model: SparseTransformer,
    compiled: CompiledSudoku,
    givens: Grid,
    segments: list[Segment],
    place: tuple[str, int],
    is_decoded: bool,
) -> Row:
    start = time.process_time()
    if is_decoded:
        written = generate_segments(model, compiled, givens)
        # A wrong segment can be followed by arbitrarily many; stop after one too many.
        said = [ids for _, ids in zip(range(len(segments) + 1), written, strict=False)]
    else:
        said = [
            np.concatenate([ids[:n], model.predict(ids[:-1], prompt_length=n)[n - 1 :]])
            for ids, n in segments
        ]
    seconds = time.process_time() - start
    num_wrong = abs(len(said) - len(segments))
    for (ids, _), other in zip(segments, said, strict=False):
        same = min(len(ids), len(other))
        num_wrong += int((ids[:same] != other[:same]).sum()) + abs(len(ids) - len(other))
    return Row(
        file=place[0],
        number=place[1],
        is_decoded=is_decoded,
        num_segments=len(segments),
        num_tokens=sum(len(ids) - n for ids, n in segments),
        num_read=sum(len(ids) for ids, _ in segments),
        num_wrong=num_wrong,
        seconds=seconds,
        least_gap=model.stats.least_gap or 0,
    )


def _report(config: Config, compiled: CompiledSudoku, rows: list[Row]) -> None:
    table = []
    for is_decoded, how in ((True, "decoded"), (False, "predicted")):
        own = [row for row in rows if row.is_decoded is is_decoded]
        seconds = sum(row.seconds for row in own)
        table.append(
            {
                "how": how,
                "puzzles": len(own),
                "segments": sum(row.num_segments for row in own),
                "tokens": sum(row.num_tokens for row in own),
                "wrong": sum(row.num_wrong for row in own),
                "longest puzzle": max((row.num_tokens for row in own), default=0),
                "tokens/s": round(sum(row.num_tokens for row in own) / seconds) if own else 0,
                "with prompts/s": round(sum(row.num_read for row in own) / seconds) if own else 0,
                "minimum gap": min((row.least_gap for row in own), default=0),
            }
        )
    facts = {
        "segment_tokens": config.segment_tokens,
        "bits": config.bits,
        "sizes": asdict(compiled.program.sizes),
        "num_parameters": compiled.program.sizes.num_parameters,
    }
    Report(title="Compiled solver, 9x9 SCoT", rows=table, facts=facts).publish(config.out)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
