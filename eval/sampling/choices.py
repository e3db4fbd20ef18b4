"""Selection of puzzles by id, CoT length and rating, as pure functions of arrays and a seed.

Random order is defined by the hash of id and seed. A selection is therefore independent of the
order of the puzzle list, smaller random subsets are contained in larger ones, and removing a puzzle
that is not selected has no effect.
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
    """Return the indices of `count` random puzzles, or of all, in random order."""
    return np.argsort(_random_order(puzzle_ids, seed))[:count]


def choose_hardest(
    puzzle_ids: PuzzleIds, cot_lengths: npt.NDArray[np.int64], *, count: int, seed: int
) -> Indices:
    """Return the indices of the puzzles with the longest CoT; ties are broken at random."""
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
    """Return the indices of the puzzles closest to each target length, within `target_ranges`.

    Ties are broken at random.

    Args:
        puzzle_ids: Distinct ids, shape (n,).
        cot_lengths: CoT lengths, shape (n,).
        targets: Target lengths, ascending.
        count: Maximum number of puzzles per target.
        seed: Sampling seed.
    """
    order = _random_order(puzzle_ids, seed)
    parts = []
    for target, (low, high) in zip(targets, target_ranges(targets), strict=True):
        inside = np.flatnonzero((cot_lengths >= low) & (cot_lengths < high))
        distances = np.abs(cot_lengths[inside] - target)
        parts.append(inside[np.lexsort((order[inside], distances))[:count]])
    return parts


def target_ranges(targets: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return disjoint ranges [low, high) of lengths around ascending targets.

    Boundaries are the geometric means of adjacent targets; the outer boundaries are symmetric on
    the log scale. The range of a single target extends by a factor of sqrt(2) on both sides.
    """
    inner = [math.sqrt(a * b) for a, b in pairwise(targets)]
    if not inner:
        return [(target / math.sqrt(2), target * math.sqrt(2)) for target in targets]
    edges = [targets[0] ** 2 / inner[0], *inner, targets[-1] ** 2 / inner[-1]]
    return list(pairwise(edges))


def bucket_label(value: float) -> str:
    """Return the label of the power-of-two bucket of a length or rating, such as `512-1023`."""
    if value < 1:
        return "0" if value >= 0 else "below 0"
    low = 1 << (int(value).bit_length() - 1)
    return str(low) if low == 1 else f"{low}-{2 * low - 1}"


def _random_order(puzzle_ids: PuzzleIds, seed: int) -> npt.NDArray[np.uint64]:
    """Return random sort keys, shape (n,); distinct ids have distinct keys."""
    with np.errstate(over="ignore"):
        numbers: npt.NDArray[np.uint64] = _mix_many(puzzle_ids, np.uint64(seed) * GOLDEN)
    return numbers


@kernel
def _mix_many(words: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    mixed = np.empty_like(words)
    for k in range(len(words)):
        mixed[k] = mix64(words[k] ^ mix64(salt))
    return mixed
