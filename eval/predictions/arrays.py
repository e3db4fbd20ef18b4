"""Predictions as arrays: npy, npz, and the dumps of HRM, TRM and their derivatives.

npy    puzzles and answers (n, 2, num_cells) or (2, n, num_cells), 0 for blank
npz    arrays `puzzles` and `answers`, or those of a dump
dump   PyTorch file of the evaluation scripts of HRM and TRM, one per rank
       (`step_N_all_preds.RANK`): `inputs` and `preds` with ids 1 + digit (1 for blank, 0 for
       padding), or `logits` over these ids
"""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.predictions.records import PredictionFile
from eval.predictions.tables import predictions_of_arrays

Array = np.ndarray[Any, np.dtype[Any]]
_PAD = 0
_DAMAGE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    struct.error,
)
"""Errors that reading a damaged pickle can raise."""
_DUMP_NAMES = "inputs and preds, or inputs and logits"


def read_npy(path: Path) -> PredictionFile:
    """Read a single array.

    Raises:
        ValueError: The shape or the data type is not supported.
    """
    array = _load(path)
    if not isinstance(array, np.ndarray) or array.ndim < 3 or 2 not in array.shape[:2]:
        shape = getattr(array, "shape", None)
        raise ValueError(f"{path}: got shape {shape}, allowed are (n, 2, cells) and (2, n, cells)")
    if array.shape[1] != 2:
        array = array.swapaxes(0, 1)
    return predictions_of_arrays(array[:, 0], array[:, 1], file=str(path))


def read_npz(path: Path) -> PredictionFile:
    """Read named arrays.

    Raises:
        ValueError: Names or shapes are not supported.
    """
    arrays = _load(path)
    if not isinstance(arrays, dict):
        raise ValueError(f"{path}: got a single array, allowed are named arrays; rename it to .npy")
    if "puzzles" in arrays and "answers" in arrays:
        return predictions_of_arrays(arrays["puzzles"], arrays["answers"], file=str(path))
    return _read_dump(arrays, file=str(path), others="puzzles and answers, ")


def read_torch_dump(path: Path) -> PredictionFile:
    """Read a dump saved by PyTorch without executing code.

    Raises:
        ValueError: The file contains other objects than tensors, or unsupported tensors.
    """
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about other pickle protocols
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path}: not a dump of tensors: {reason}") from None
    if not isinstance(tensors, dict):
        raise ValueError(f"{path}: got {type(tensors).__name__}, allowed is a dict of tensors")
    arrays = {
        name: tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
        for name, tensor in tensors.items()
        if isinstance(tensor, torch.Tensor)
    }
    return _read_dump(arrays, file=str(path), others="")


def _read_dump(arrays: Mapping[str, Array], *, file: str, others: str) -> PredictionFile:
    answers = arrays.get("preds", arrays.get("logits"))
    if "inputs" not in arrays or answers is None:
        names = ", ".join(arrays)
        raise ValueError(f"{file}: got {names}, allowed are {others}{_DUMP_NAMES}")
    if "preds" not in arrays:
        answers = answers.argmax(axis=-1)
    inputs = arrays["inputs"]
    if inputs.ndim != 2 or answers.shape != inputs.shape:
        raise ValueError(
            f"{file}: got inputs {inputs.shape} and answers {answers.shape}, allowed are equal "
            "shapes (n, num_cells)"
        )
    is_padding = (inputs == _PAD).all(axis=1)
    # An id of 0 in an answer is not a digit either; map it to 0 (blank) instead of -1.
    digits = [np.maximum(ids[~is_padding].astype(np.int64) - 1, 0) for ids in (inputs, answers)]
    read = predictions_of_arrays(digits[0], digits[1], file=file)
    return replace(read, num_padding=int(is_padding.sum()))


def _load(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded.items()) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: not an array file: {error}") from error
