"""Token sources of the trace page: a stored evaluation or a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data.model_format.facts import model_name
from data.model_format.precision import PrecisionPolicy
from eval.engines.contract import Request, paper_caps
from eval.engines.factory import LocalEngineName, make_engine, make_network
from eval.engines.puzzle_run import input_prompt
from eval.inspect.first_wrong import segment_tokens_of
from eval.inspect.streams import solver_stream
from eval.results.folder import EvaluationFolder
from eval.results.records import ResultRow
from eval.trace_page.register_facts import read_register_facts
from eval.trace_page.registers import Readings, read_registers
from solver.boards import Board, Grid
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from solver.vocabulary import Tokens

if TYPE_CHECKING:
    from eval.trace_page.probabilities import Probabilities


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Attempt:
    """Generated tokens of a model for a puzzle."""

    board: Board
    """Board of the puzzle."""
    givens: Grid
    """The puzzle."""
    segments: tuple[Tokens, ...]
    """Generated ids of each segment."""
    model_name: str
    """Name of the model."""
    finish_reason: str
    """Why decoding ended."""
    segment_tokens: int | None
    """Trace tokens per segment of the training data; None for CoT."""
    readings: Readings | None = None
    """Register values, if the model folder describes registers."""
    probabilities: Probabilities | None = None
    """Probabilities of the generated tokens of a trained model of a family of this package."""


def attempt_of_evaluation(path: Path, *, puzzle: str | None) -> Attempt:
    """Read the stored tokens of a puzzle of an evaluation.

    Args:
        path: Folder of the evaluation.
        puzzle: The puzzle or its key; None for the unsolved puzzle with the shortest CoT, or for
            the one with the shortest CoT if all are solved.

    Raises:
        ValueError: The puzzle is not in the evaluation, or its tokens were not stored.
        OSError: The folder contains no evaluation.
    """
    folder = EvaluationFolder.open(path)
    row = _choose_row(folder, puzzle)
    segments = folder.generated([row.key]).get(row.key)
    if segments is None:
        raise ValueError(f"{path}: its tokens were not stored: `sudocot eval run --keep-tokens`")
    return attempt_of_row(folder, row, segments)


def attempt_of_row(
    folder: EvaluationFolder, row: ResultRow, segments: tuple[Tokens, ...]
) -> Attempt:
    """Return the attempt of a result of an evaluation with the stored tokens `segments`."""
    _, givens = parse_puzzle(row.puzzle.givens, board=folder.board)
    return Attempt(
        board=folder.board,
        givens=givens,
        segments=segments,
        model_name=folder.config.model.name,
        finish_reason=str(row.finish_reason),
        segment_tokens=segment_tokens_of(folder.config),
    )


def _choose_row(folder: EvaluationFolder, puzzle: str | None) -> ResultRow:
    rows = folder.rows
    if not rows:
        raise ValueError(f"{folder.path}: no puzzle has a result yet")
    if puzzle is None:
        return min(rows, key=lambda row: (row.is_solved, row.puzzle.cot_length, row.key))
    by_key = {row.key: row for row in rows}
    if puzzle in by_key:
        return by_key[puzzle]
    _, grid = parse_puzzle(puzzle, board=folder.board)
    givens = format_grid(folder.board, grid)
    for row in rows:
        if row.puzzle.givens == givens:
            return row
    raise ValueError(f"{folder.path}: no result for the puzzle {givens}")


def attempt_of_model(
    path: Path,
    board: Board,
    givens: Grid,
    *,
    engine: LocalEngineName | None,
    precision: PrecisionPolicy,
    max_register_tokens: int,
    max_tokens: int,
) -> Attempt:
    """Solve a puzzle with a model, on a GPU if available, with the token limits of the paper.

    Args:
        path: Model folder.
        board: Board of the puzzle.
        givens: The puzzle.
        engine: Name of the engine; None for `segment`, or `hf` for other model families.
        precision: Number formats.
        max_register_tokens: Maximum number of tokens with register values.
        max_tokens: Maximum number of tokens with probabilities.

    Raises:
        ValueError: The model is for another board or malformed.
        OSError: There is no model.
    """
    import torch

    from eval.network.model_folder import ModelFolder
    from eval.network.transformers_model import load_model
    from eval.trace_page.probabilities import read_probabilities

    folder = ModelFolder.open(path)
    if folder.board != board:
        raise ValueError(f"puzzle: got a {board.name} board, the model's is {folder.board.name}")
    # A puzzle without a trace is rejected before it is decoded, which may take hours.
    solver_stream(board, givens, segment_tokens=folder.facts.segment_tokens)
    mode, registers = folder.facts.mode, read_register_facts(path, board)
    if engine is None:
        engine = "hf" if folder.network_config is None else "segment"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = make_engine(engine, folder, precision=precision, device=device, num_slots=1)
    request = Request(
        key=f"{puzzle_id(board, givens[np.newaxis])[0]:016x}",
        board=board,
        givens=givens,
        mode=mode,
        caps=paper_caps(mode),
    )
    try:
        (result,) = decoder.decode([request])
    finally:
        decoder.close()
    readings = None
    if registers is not None and max_register_tokens > 0:
        readings = read_registers(
            load_model(folder),
            registers,
            prompt=input_prompt(request),
            segments=result.segments,
            max_tokens=max_register_tokens,
        )
    probabilities = None
    if registers is None and folder.network_config is not None and result.num_new_tokens:
        probabilities = read_probabilities(
            make_network(folder, precision=precision, device=device),
            request,
            result.segments,
            max_tokens=max_tokens,
        )
    return Attempt(
        board=board,
        givens=givens,
        segments=result.segments,
        model_name=model_name(path),
        finish_reason=str(result.finish_reason),
        segment_tokens=folder.facts.segment_tokens if mode == "scot" else None,
        readings=readings,
        probabilities=probabilities,
    )
