"""Functions shared by exporters and readers of model folders."""

from __future__ import annotations

import contextlib
import hashlib
import json
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import GenerationConfig

from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.constructions.sequences import MAX_BITS
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.compiled import CompiledProgram
from data.model_format.facts import FACTS_FILE, FACTS_FORMAT
from data.model_format.weights import weights_digest

MACHINE_FILE = "machine.json"


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
    vocabulary = "\n".join(compiled.token_texts).encode()
    content = {
        "format": FACTS_FORMAT,
        "vocabulary_digest": hashlib.sha256(vocabulary).hexdigest(),
        "weights_digest": weights_digest(tensors),
        **facts,
    }
    write_json(content, folder / FACTS_FILE, indent=indent)


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


def recompile_machine(
    machine: TuringMachine | Dfa, content: Mapping[str, Any], *, path: Path, bits: int
) -> Compiled:
    """Compile the machine of a folder with the stored options.

    Args:
        machine: The machine.
        content: Fields `mode` and, for Turing machines, `reachable_only`.
        path: File of the fields.
        bits: r.

    Raises:
        ValueError: a field is malformed, or r is not allowed; the message names the file.
    """
    if isinstance(machine, Dfa):
        require(path, content, "mode", ("dfa",))
        with errors_name(path):
            return compile_dfa(machine, bits=bits)
    mode = require(path, content, "mode", ("cot", "scot"))
    reachable_only = require(path, content, "reachable_only", (True, False))
    with errors_name(path):
        return compile_machine(machine, mode=mode, bits=bits, reachable_only=reachable_only)


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
