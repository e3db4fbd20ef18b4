"""Model folders of the compiled solver, and the tokens that they must generate."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from data.segments import split_into_segments
from scripts.cli.main import main
from solver.boards import Board, Grid
from solver.mrv.tracer import trace
from solver.vocabulary import END_INPUT, Tokens

SEGMENT_TOKENS = 16


def compile_solver(
    folder: Path,
    *options: str,
    board: str = "4x4",
    mode: str = "scot",
    architecture: str = "compiled",
) -> Path:
    """Write a folder; `options` are further ones of the command."""
    words = ["--board", board, "--mode", mode, "--architecture", architecture]
    if mode == "scot":
        words += ["--segment-tokens", str(SEGMENT_TOKENS)]
    assert main(["compile", "sudoku", *words, *options, "--out", str(folder)]) == 0
    return folder


def written_by_solver(board: Board, givens: Grid, *, mode: str = "scot") -> list[list[int]]:
    """What follows the prompt of each segment."""
    tokens = trace(board, givens).tokens
    if mode == "cot":
        return [tokens[tokens.tolist().index(END_INPUT) + 1 :].tolist()]
    segments = split_into_segments(
        board, tokens, np.array([len(tokens)]), segment_tokens=SEGMENT_TOKENS
    )
    ends = [0, *segments.ends.tolist()]
    parts: list[Tokens] = [segments.tokens[start:end] for start, end in pairwise(ends)]
    lengths = segments.prompt_lengths.tolist()
    return [part[n:].tolist() for part, n in zip(parts, lengths, strict=True)]
