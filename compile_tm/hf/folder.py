"""Functions shared by exporters of model folders: file names, generation config, staging."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import reprlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils import logging as transformers_logging

from compile_tm.constructions.sequences import MAX_BITS
from compile_tm.program.compiled import CompiledProgram

FACTS_FILE = "sudocot.json"
MACHINE_FILE = "machine.json"


@contextlib.contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `final` that is renamed to it when the block succeeds.

    Raises:
        FileExistsError: `final` exists.
    """
    if final.exists():
        raise FileExistsError(errno.EEXIST, "exists already", str(final))
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{final.name}.", dir=final.parent) as temporary:
        staged = Path(temporary) / final.name
        staged.mkdir()
        yield staged
        staged.rename(final)


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Disable the progress bars of transformers."""
    is_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_enabled:
            transformers_logging.enable_progress_bar()


def generation_config(compiled: CompiledProgram) -> GenerationConfig:
    """Return greedy decoding to a stop token or to the last position."""
    return GenerationConfig(
        bos_token_id=compiled.first_ids[0],
        eos_token_id=list(compiled.stop_ids),
        pad_token_id=compiled.pad_id,
        do_sample=False,
        # The last token is not read, so it needs no position.
        max_length=compiled.program.max_positions + 1,
    )


def write_evaluation_facts(
    compiled: CompiledProgram, tensors: Mapping[str, Tensor], folder: Path, *, indent: int
) -> None:
    """Write `sudocot.json` if the program is a solver that can be evaluated."""
    facts = compiled.evaluation_facts
    if facts is None:
        return
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        # numpy has no bf16.
        raw = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        digest.update(raw.numpy().tobytes())
    vocabulary = "\n".join(compiled.token_texts).encode()
    content = {
        "format": 1,
        "vocabulary_digest": hashlib.sha256(vocabulary).hexdigest(),
        "weights_digest": digest.hexdigest(),
        **facts,
    }
    write_json(content, folder / FACTS_FILE, indent=indent)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object.

    Raises:
        ValueError: the file is malformed; the message names it.
        OSError: it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: brackets nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: got {type(content).__name__}, allowed is an object")
    return content


def require(path: Path, content: Mapping[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    """Return a field that has one of the allowed values.

    Raises:
        ValueError: it has another value; the message names file and field.
    """
    value = content.get(key)
    if not isinstance(value, str | int) or value not in allowed:
        choices = ", ".join(map(str, allowed))
        raise ValueError(f"{path}: {key}: got {reprlib.repr(value)}, allowed are {choices}")
    return value


def require_bits(path: Path, content: Mapping[str, Any]) -> int:
    """Return the field `bits`; see `require`."""
    bits = content.get("bits")
    if type(bits) is not int or not 1 <= bits <= MAX_BITS:
        raise ValueError(f"{path}: bits: got {reprlib.repr(bits)}, allowed are 1 to {MAX_BITS}")
    return bits


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Prefix the messages of `ValueError`s with a file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_json(content: object, path: Path, *, indent: int | None) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")
