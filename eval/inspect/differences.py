"""Token-level differences between two evaluations of the same puzzles.

In fp32, all engines generate the same tokens. In bf16, different orders of summation can resolve
near-ties differently; the disagreement rate is the share of puzzles with a different token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.engines.contract import Request
from eval.engines.puzzle_run import input_prompt, join
from eval.inspect.replay import Preference, logits_after, preference_of
from eval.network.types import TokenNetwork
from eval.results.folder import TOKENS_FILE, EvaluationFolder
from eval.results.runner import different_settings, request_of
from solver.vocabulary import SUMMARY, Tokens, suffix_from_last


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Difference:
    """The first token in which two evaluations differ on a puzzle."""

    key: str
    """Puzzle hash."""
    segment: int
    """Index of the segment."""
    position: int
    """Index of the generated token in the segment."""
    before: Tokens
    """Common prefix: the prompt and the tokens before the position."""
    tokens: tuple[int | None, int | None]
    """Tokens of both evaluations; None if the segment had ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Token-level comparison of two evaluations."""

    num_puzzles: int
    """Puzzles with a result in both."""
    num_unmatched: int
    """Puzzles of the samples without a result in both."""
    num_tokens: int
    """Number of equal tokens before the first difference of each puzzle."""
    differences: tuple[Difference, ...]
    """First difference of each puzzle, by key."""
    settings: tuple[str, ...]
    """Settings in which they differ."""


def compare(first: EvaluationFolder, second: EvaluationFolder) -> Comparison:
    """Find the first different token of each puzzle with a result in both evaluations.

    Raises:
        ValueError: Boards or modes differ, there is no common puzzle, or tokens were not stored.
    """
    for name in ("board", "mode"):
        ours, theirs = getattr(first.config, name), getattr(second.config, name)
        if ours != theirs:
            raise ValueError(f"{name}: got {ours} and {theirs}, allowed is one")
    for folder in (first, second):
        if not (folder.path / TOKENS_FILE).exists():
            raise ValueError(
                f"{folder.path}: no {TOKENS_FILE}; `sudocot eval run --keep-tokens` writes it"
            )
    theirs_by_key = {row.key for row in second.rows}
    shared = [row for row in first.rows if row.key in theirs_by_key]
    if not shared:
        raise ValueError(f"{first.path} and {second.path} have no puzzle in common")
    keys = [row.key for row in shared]
    written = [folder.generated(keys) for folder in (first, second)]
    for folder, tokens in zip((first, second), written, strict=True):
        lost = [key for key in keys if key not in tokens]
        if lost:
            raise ValueError(f"{folder.path / TOKENS_FILE}: no tokens of puzzle {lost[0]}")
    differences, num_tokens = [], 0
    for row in shared:
        pair = written[0][row.key], written[1][row.key]
        request = request_of(first.board, row.puzzle, first.config)
        num_same, difference = first_difference(request, pair)
        num_tokens += num_same
        if difference is not None:
            differences.append(difference)
    return Comparison(
        num_puzzles=len(shared),
        num_unmatched=len({p.key for p in (*first.sample, *second.sample)}) - len(shared),
        num_tokens=num_tokens,
        differences=tuple(differences),
        settings=tuple(different_settings(first.config, second.config)),
    )


def preference_at(network: TokenNetwork, difference: Difference) -> Preference:
    """Return the most likely ids of a model at a difference."""
    before = difference.before
    [logits] = logits_after(network, before, first=len(before) - 1)
    return preference_of(logits[-1])


def first_difference(
    request: Request, pair: tuple[Sequence[Tokens], Sequence[Tokens]]
) -> tuple[int, Difference | None]:
    """Return the number of equal leading tokens of two results, and their first difference.

    Args:
        request: The puzzle.
        pair: Generated ids of each segment of both results.
    """
    prompt = input_prompt(request)
    empty = prompt[:0]
    num_same = 0
    for segment in range(max(map(len, pair))):
        ours, theirs = (part[segment] if segment < len(part) else empty for part in pair)
        common = min(len(ours), len(theirs))
        wrong = np.flatnonzero(ours[:common] != theirs[:common])
        position = int(wrong[0]) if len(wrong) else common
        num_same += position
        if len(wrong) or len(ours) != len(theirs):
            before = join(prompt, ours[:position])
            return num_same, Difference(
                key=request.key,
                segment=segment,
                position=position,
                before=before,
                tokens=(_token(ours, position), _token(theirs, position)),
            )
        summary = suffix_from_last(ours, SUMMARY)
        prompt = empty if summary is None else summary
    return num_same, None


def _token(tokens: Tokens, position: int) -> int | None:
    return int(tokens[position]) if position < len(tokens) else None
