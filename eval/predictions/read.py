"""Reads predictions; the format is detected from the name and the first lines of a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eval.predictions.arrays import read_npy, read_npz, read_torch_dump
from eval.predictions.logs import (
    is_inspect_json,
    is_lm_eval_line,
    read_inspect_log,
    read_lm_eval_samples,
)
from eval.predictions.records import PredictionFile
from eval.predictions.tables import read_table
from solver.puzzles import NO_COLUMN_NAMES, ColumnNames

_DUMP = re.compile(r"step_\d+_all_preds\.\d+")
_FORMATS = ".jsonl, .csv, .tsv, .parquet, .npy, .npz, .pt, step_N_all_preds.RANK, .eval, .json"


def read_predictions(
    paths: Sequence[Path], *, columns: ColumnNames = NO_COLUMN_NAMES
) -> PredictionFile:
    """Read and concatenate files of predictions, such as those of several ranks.

    Args:
        paths: The files.
        columns: Explicitly named columns of tables, instead of those with known names.

    Raises:
        ValueError: A format is unknown, a file is damaged, or boards or prompts differ.
        OSError: A file cannot be read.
    """
    read = [_read(path, columns) for path in paths]
    first = read[0]
    for path, other in zip(paths, read, strict=True):
        if (other.board, other.num_shots) != (first.board, first.num_shots):
            raise ValueError(f"{path}: board or prompt differs from that of {paths[0]}")
    return replace(
        first,
        predictions=[row for file in read for row in file.predictions],
        errors=[error for file in read for error in file.errors],
        num_padding=sum(file.num_padding for file in read),
    )


def _read(path: Path, columns: ColumnNames) -> PredictionFile:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    suffix = path.suffix.lower()
    try:
        if suffix == ".jsonl":
            is_log = is_lm_eval_line(_first_object(path))
            if is_log:
                return read_lm_eval_samples(path)
        if suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
            return read_table(path, suffix=suffix, columns=columns)
        if suffix == ".npy":
            return read_npy(path)
        if suffix == ".npz":
            return read_npz(path)
        if suffix in (".pt", ".pth") or _DUMP.fullmatch(path.name):
            return read_torch_dump(path)
        if suffix == ".json" and _is_array(path):
            return read_table(path, suffix=suffix, columns=columns)
        if suffix == ".eval" or (suffix == ".json" and is_inspect_json(path)):
            return read_inspect_log(path, suffix=suffix)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    except RecursionError:
        raise ValueError(f"{path}: brackets nested too deep") from None
    raise ValueError(f"{path}: unknown format, allowed are {_FORMATS}")


def _is_array(path: Path) -> bool:
    with path.open(encoding="utf-8-sig") as file:
        return file.read(4096).lstrip().startswith("[")


def _first_object(path: Path) -> dict[str, object]:
    with path.open(encoding="utf-8-sig") as file:
        value = json.loads(next((line for line in file if line.strip()), "{}"))
    return value if isinstance(value, dict) else {}
