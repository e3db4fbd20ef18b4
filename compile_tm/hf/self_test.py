"""`self_test.json`: words with the tokens of the definitions."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from compile_tm.constructions.compiled import Compiled, CompiledDfa
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.interpreter import run_machine
from compile_tm.machines.random_machines import random_word
from data.runtime.documents import load_json

SELF_TEST_FILE = "self_test.json"
_MAX_WORDS = 12
_MAX_TOKENS = 1500
"""Limit on the total number of tokens of the chosen words."""
_MAX_TRIES = 200
_MAX_ID = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SelfTestCase:
    """A word and its expected segments."""

    word: tuple[str, ...]
    segments: tuple[tuple[tuple[int, ...], int], ...]
    """Ids of each segment with the length of its prompt; only SCoT has several."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all segments, prompts included."""
        return sum(len(ids) for ids, _ in self.segments)


def self_test_case(compiled: Compiled, word: str | Sequence[str]) -> SelfTestCase:
    """Return the expected tokens of a word.

    Raises:
        ValueError: the machine has no output on the word, or r is too small for it.
    """
    segments = compiled.expected_segments(word)
    return SelfTestCase(
        word=compiled.machine.word(word),
        segments=tuple((tuple(ids.tolist()), length) for ids, length in segments),
    )


def choose_cases(compiled: Compiled) -> list[SelfTestCase]:
    """Choose short and random words for which the machine soon halts with an output.

    Raises:
        ValueError: no such word was found.
    """
    cases: dict[tuple[str, ...], SelfTestCase] = {}
    room = _MAX_TOKENS
    refusal = "words: no word was found on which the machine soon halts; give some"
    for word in islice(_candidates(compiled), _MAX_TRIES):
        if len(cases) == _MAX_WORDS:
            break
        if word in cases or not _ends_soon(compiled, word):
            continue
        try:
            case = self_test_case(compiled, word)
        except ValueError as error:  # no output, or r is too small
            refusal = f"words: none of the words tried can be used: {error}"
            continue
        if case.num_tokens <= room:
            cases[word] = case
            room -= case.num_tokens
    if not cases:
        raise ValueError(refusal)
    return list(cases.values())


def write_cases(cases: Sequence[SelfTestCase], folder: Path) -> None:
    """Write the file."""
    rows = [
        {
            "word": case.word,
            "segments": [{"ids": ids, "prompt_length": n} for ids, n in case.segments],
        }
        for case in cases
    ]
    text = json.dumps(rows, separators=(",", ":")).replace('{"word"', '\n{"word"')
    (folder / SELF_TEST_FILE).write_text(text + "\n", encoding="utf-8")


def read_cases(folder: Path) -> list[SelfTestCase]:
    """Read the file.

    Raises:
        ValueError: it is malformed or empty.
        OSError: it is missing.
    """
    path = folder / SELF_TEST_FILE
    rows = load_json(path)
    try:
        cases = [_read_case(row) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: no self-test: {reprlib.repr(error)}") from error
    if not cases:
        raise ValueError(f"{path}: holds no words")
    return cases


def _read_case(row: Any) -> SelfTestCase:
    segments = []
    for part in row["segments"]:
        ids, length = tuple(part["ids"]), part["prompt_length"]
        if not all(type(token) is int and 0 <= token <= _MAX_ID for token in ids):
            raise ValueError("ids: allowed are token ids")
        if type(length) is not int or not 1 <= length <= len(ids):
            raise ValueError("prompt_length: allowed are 1 to the number of ids")
        segments.append((ids, length))
    word = tuple(row["word"])
    if not segments or not all(isinstance(symbol, str) for symbol in word):
        raise ValueError("allowed are a word and at least one segment")
    return SelfTestCase(word=word, segments=tuple(segments))


def _candidates(compiled: Compiled) -> Iterator[tuple[str, ...]]:
    machine = compiled.machine
    alphabet = machine.alphabet if isinstance(machine, Dfa) else machine.input_alphabet
    for length in range(3):
        yield from islice(product(alphabet, repeat=length), 3)
    rng = np.random.default_rng(0)
    while True:
        yield random_word(rng, machine)


def _ends_soon(compiled: Compiled, word: tuple[str, ...]) -> bool:
    if isinstance(compiled, CompiledDfa):
        return len(word) < 1 << compiled.bits
    run = run_machine(compiled.machine, word, max_steps=_MAX_TOKENS)
    return run.output is not None
