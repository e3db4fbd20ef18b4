"""Choices among puzzles by id, length and rating: pure functions of arrays and a seed.

Random order is the order of the ids, hashed with the seed. So a choice does not depend on the order
of a list, and a smaller random subset is a part of a larger one. Removing a puzzle that was not
chosen changes no choice.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from solver.jit import kernel
from solver.random_draws import GOLDEN, mix64

Indices = npt.NDArray[np.intp]
PuzzleIds = npt.NDArray[np.uint64]


def choose_random(puzzle_ids: PuzzleIds, *, count: int | None, seed: int) -> Indices:
    """Choose `count` puzzles, or all; indices in random order."""
    return np.argsort(_random_order(puzzle_ids, seed))[:count]


def choose_hardest(
    puzzle_ids: PuzzleIds, cot_lengths: npt.NDArray[np.int64], *, count: int, seed: int
) -> Indices:
    """Choose the puzzles with the longest CoT; of equal ones at random."""
    order: Indices = np.lexsort((_random_order(puzzle_ids, seed), -cot_lengths))
    return order[:count]


def choose_targets(
    puzzle_ids: PuzzleIds,
    cot_lengths: npt.NDArray[np.int64],
    *,
    targets: tuple[int, ...],
    count: int,
    seed: int,
) -> list[Indices]:
    """Choose the `count` puzzles closest to each target within its range; of equal ones at random.

    Args:
        puzzle_ids: Distinct ids, shape (n,).
        cot_lengths: Lengths, shape (n,).
        targets: Lengths, ascending.
        count: Puzzles for each at most.
        seed: Seed of the choice.
    """
    order = _random_order(puzzle_ids, seed)
    parts = []
    for target, (low, high) in zip(targets, target_ranges(targets), strict=True):
        inside = np.flatnonzero((cot_lengths >= low) & (cot_lengths < high))
        distances = np.abs(cot_lengths[inside] - target)
        parts.append(inside[np.lexsort((order[inside], distances))[:count]])
    return parts


def target_ranges(targets: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return the range [low, high) of lengths that belong to each of the ascending targets.

    It ends halfway, as a ratio, to the next target, and as far on the other side of the first and
    last; a single target reaches a factor of sqrt(2). So no puzzle is wanted twice, and a target
    that nothing is close to stays empty.
    """
    inner = [math.sqrt(a * b) for a, b in pairwise(targets)]
    if not inner:
        return [(target / math.sqrt(2), target * math.sqrt(2)) for target in targets]
    edges = [targets[0] ** 2 / inner[0], *inner, targets[-1] ** 2 / inner[-1]]
    return list(pairwise(edges))


def bucket_label(value: float) -> str:
    """Name the bucket of a length or a rating: whole numbers from one power of two to the next."""
    if value < 1:
        return "0" if value >= 0 else "below 0"
    low = 1 << (int(value).bit_length() - 1)
    return str(low) if low == 1 else f"{low}-{2 * low - 1}"


def _random_order(puzzle_ids: PuzzleIds, seed: int) -> npt.NDArray[np.uint64]:
    """Return numbers, shape (n,), whose order is random; distinct ids have distinct numbers."""
    with np.errstate(over="ignore"):
        numbers: npt.NDArray[np.uint64] = _mix_many(puzzle_ids, np.uint64(seed) * GOLDEN)
    return numbers


@kernel
def _mix_many(words: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    mixed = np.empty_like(words)
    for k in range(len(words)):
        mixed[k] = mix64(words[k] ^ mix64(salt))
    return mixed
