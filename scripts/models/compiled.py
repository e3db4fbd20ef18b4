"""Compiled solvers by name, compiled on first use into the user's cache folder."""

from __future__ import annotations

import logging
from pathlib import Path

import compile_tm
from solver.cache_folder import cache_folder, source_digest

COMPILED_MODELS = {"compiled-4x4": "4x4", "compiled-6x6": "6x6", "compiled-9x9": "9x9"}
"""Boards of the compiled solvers, by name."""

logger = logging.getLogger(__name__)


def compiled_model_folder(name: str) -> Path:
    """Return the folder of a compiled solver, with the paper's segments of 512 trace tokens.

    Raises:
        OSError: No cache folder is writable.
    """
    from compile_tm.commands.sudoku import DEFAULT_BITS, DEFAULT_SEGMENT_TOKENS
    from compile_tm.hf.sudoku import export_sudoku
    from compile_tm.sudoku.board import BOARDS
    from compile_tm.sudoku.compiled import compile_sudoku

    cache = cache_folder("compiled-models")
    if cache is None:
        raise OSError(f"model {name}: no cache folder is writable; set SUDOCOT_CACHE_DIR to one")
    # Pages and evaluations show the last component of the path.
    folder = cache / source_digest(Path(compile_tm.__file__).parent) / name
    if folder.exists():
        return folder
    logger.info("compiling the solver into %s (first use only)", folder)
    compiled = compile_sudoku(
        BOARDS[COMPILED_MODELS[name]],
        mode="scot",
        bits=DEFAULT_BITS["scot"],
        segment_tokens=DEFAULT_SEGMENT_TOKENS,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        export_sudoku(compiled, folder)
    except FileExistsError:  # created by another process
        if not folder.exists():
            raise
    return folder
