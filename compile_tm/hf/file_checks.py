"""Checks of the tokenizer and the self-test of a model folder, for all architectures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from compile_tm.hf.self_test import SelfTestCase
from compile_tm.measure.checks import Problem
from data.model_format.weights import clear_read_errors


def tokenizer_problems(folder: Path, token_texts: Sequence[str]) -> list[Problem]:
    """Return the first token whose id differs from that of the machine, if there is one.

    Raises:
        ValueError: the tokenizer is malformed.
        OSError: it is missing.
    """
    with clear_read_errors(folder):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    vocabulary = tokenizer.get_vocab()
    for number, text in enumerate(token_texts):
        if vocabulary.get(text) != number:
            return [
                Problem("tokenizer", f"{text!r} has id {vocabulary.get(text)}, must be {number}")
            ]
    return []


def check_cases(
    cases: Sequence[SelfTestCase], expected_case: Callable[[Sequence[str]], SelfTestCase]
) -> tuple[list[SelfTestCase], list[Problem]]:
    """Compare cases with the definition.

    Args:
        cases: Cases of `self_test.json`.
        expected_case: Returns the expected case of a word, or raises `ValueError`.

    Returns:
        The cases that are right, and the problems of the others, on which a model cannot be run:
        their tokens may be outside of the vocabulary, or too few or too many.
    """
    right: list[SelfTestCase] = []
    problems: list[Problem] = []
    for case in cases:
        where = f"self-test, word {' '.join(case.word)!r}"
        try:
            if case == expected_case(case.word):
                right.append(case)
            else:
                problems.append(Problem(where, "its tokens differ from the definition"))
        except ValueError as error:
            problems.append(Problem(where, str(error)))
    return right, problems
