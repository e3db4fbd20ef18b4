"""Exact greedy decoding by lookups, at a cost per token that does not grow with the context.

By the paper's Lemma on assumptions, all best positions of a head have the same value, so that one
of them suffices (Appendix "Computational Efficiency and Attention Sparsity"). It is found by the
signs of its key (see `sparse_memory`), in integer arithmetic. The assumptions are verified during
decoding: values of ties agree, and all coordinates remain ternary. A violation raises `SparseError`
with the layer and the head or coordinate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Program, Sizes
from compile_tm.runtime.sparse_batch import new_block, run_blocks
from compile_tm.runtime.sparse_kernel import (
    BAD_HEAD_OUTPUT,
    DONE,
    MIXED_VALUES,
    PositionValues,
    Scratch,
    run_tokens,
)
from compile_tm.runtime.sparse_memory import Memory, new_memory
from compile_tm.runtime.sparse_plan import MAX_SLOTS, WORD, SparsePlan, make_plan

_NO_GAP = 1 << 30
_FIRST_POSITIONS = 1 << 20
"""Generated positions that `generate` allocates first; longer sequences are decoded again."""


class SparseError(ValueError):
    """A program violates the assumptions of sparse decoding; the message names the layer."""


@dataclass(frozen=True, slots=True)
class SparseStats:
    """Statistics of all calls."""

    least_gap: int | None
    """Minimum gap of the top two scores over generated or predicted tokens; None without any."""
    greatest_hidden: int
    """Maximum value of a hidden neuron."""


class SparseTransformer:
    """Greedy decoder of a program by lookups."""

    def __init__(self, program: Program, plan: SparsePlan) -> None:
        self.program, self._plan = program, plan
        self._least_gap: int | None = None
        self._greatest_hidden = 0

    @classmethod
    def from_program(cls, program: Program) -> SparseTransformer:
        """Return the decoder of a program.

        Raises:
            ValueError: a head has too many key coordinates, or the position is written.
        """
        return cls(program, make_plan(program))

    @property
    def max_positions(self) -> int:
        """Maximum number of positions."""
        return self.program.max_positions

    @property
    def stats(self) -> SparseStats:
        """Statistics of all calls."""
        return SparseStats(self._least_gap, self._greatest_hidden)

    def predict(
        self,
        ids: npt.NDArray[np.integer],
        *,
        prompt_length: int = 1,
        is_blocked: bool = True,
    ) -> npt.NDArray[np.int32]:
        """Return the greedy next token (n,) after each prefix of a sequence (n,).

        Args:
            ids: The sequence.
            prompt_length: `stats` includes the gaps after this many tokens and later.
            is_blocked: Apply the layers to blocks of 64 positions (see `sparse_batch`); if False,
                token by token as in `generate`, with the same result.

        Raises:
            ValueError: no tokens, or more than `max_positions`.
            SparseError: the program violates the assumptions on the sequence.
        """
        self._check(ids, self.max_positions)
        buffer = _buffer(ids, len(ids))
        if is_blocked:
            predicted = self._predict_blocks(buffer[:-1], prompt_length)
            if predicted is not None:
                return predicted
        return self._run(buffer, len(ids), prompt_length, ())[1]

    def generate(
        self,
        prompts: Sequence[npt.NDArray[np.integer]],
        *,
        stop: Collection[int],
        max_positions: int | None = None,
    ) -> list[npt.NDArray[np.int32]]:
        """Continue each prompt greedily to a stop token or the last position.

        Args:
            prompts: Ids, of any lengths.
            stop: Ids that end a sequence.
            max_positions: Limit on the positions of a sequence (default: the program's).

        Returns:
            The sequences, prompts and stop tokens included.

        Raises:
            ValueError: a prompt is empty or longer than `max_positions`.
            SparseError: the program violates the assumptions on a sequence.
        """
        limit = self.max_positions
        if max_positions is not None:
            limit = min(limit, max_positions)
        for prompt in prompts:
            self._check(prompt, limit)
        return [self._generate(prompt, stop, limit) for prompt in prompts]

    def _generate(
        self, prompt: npt.NDArray[np.integer], stop: Collection[int], limit: int
    ) -> npt.NDArray[np.int32]:
        """The continued prompt. The allocated positions are doubled until the sequence ends."""
        room = min(len(prompt) + _FIRST_POSITIONS, limit)
        while True:
            ids = self._run(_buffer(prompt, room), len(prompt), len(prompt), stop)[0]
            if room == limit or ids[-1] in stop:
                return ids
            room = min(2 * room, limit)

    def _check(self, ids: npt.NDArray[np.integer], limit: int) -> None:
        if not 1 <= len(ids) <= limit:
            raise ValueError(f"tokens: got {len(ids)}, allowed are 1 to {limit}")
        if ids.max() >= self.program.sizes.vocab_size or ids.min() < 0:
            raise ValueError(f"tokens: allowed are ids below {self.program.sizes.vocab_size}")

    def _predict_blocks(
        self, tokens: npt.NDArray[np.int32], num_scored: int
    ) -> npt.NDArray[np.int32] | None:
        """The next token after each prefix; None if the assumptions are violated."""
        facts = np.zeros(2, dtype=np.int64)
        predicted = np.empty(len(tokens), dtype=np.int32)
        try:
            is_exact = run_blocks(
                self._plan,
                self._new_memory(len(tokens)),
                self._new_position_values(len(tokens)),
                new_block(self.program.sizes),
                tokens,
                num_scored,
                predicted,
                facts,
            )
        except IndexError:  # keys are of too many kinds
            return None
        if not is_exact:
            return None
        self._note_stats(*facts.tolist())
        return predicted

    def _new_memory(self, num_positions: int) -> Memory:
        return new_memory(len(self._plan.heads.width), num_positions)

    def _new_position_values(self, num_positions: int) -> PositionValues:
        heads = self._plan.heads
        num_words = int(heads.width[heads.position_row >= 0].sum()) * num_positions
        return PositionValues(
            # Unused memory is never touched, so the system does not allocate it.
            np.empty(num_words, dtype=np.uint64),
            num_positions,
            np.zeros(len(heads.width), dtype=np.bool_),
        )

    def _run(
        self,
        tokens: npt.NDArray[np.int32],
        num_given: int,
        num_scored: int,
        stop: Collection[int],
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The sequence, and the next token after each of its prefixes."""
        sizes = self.program.sizes
        num_positions = len(tokens) - 1
        is_stop = np.zeros(sizes.vocab_size, dtype=np.bool_)
        is_stop[list(stop)] = True
        facts = np.zeros(5, dtype=np.int64)
        predicted = np.empty(num_positions, dtype=np.int32)
        try:
            length = run_tokens(
                self._plan,
                self._new_memory(num_positions),
                self._new_position_values(num_positions),
                _scratch(sizes),
                tokens,
                num_given,
                num_scored,
                is_stop,
                predicted,
                facts,
            )
        except IndexError as error:
            raise SparseError(f"keys are of too many kinds: {error}") from None
        self._note(facts, length)
        return tokens[:length].copy(), predicted[: length - 1].copy()

    def _note(self, facts: npt.NDArray[np.int64], position: int) -> None:
        failure, layer, place, gap, hidden = facts.tolist()
        if failure != DONE:
            where = f"layer {layer + 1} ({self.program.layers[layer].name}), position {position}"
            if failure == MIXED_VALUES:
                number = place - int(self._plan.heads.layer_start[layer])
                head = self.program.layers[layer].heads[number]
                raise SparseError(
                    f"{where}: the best positions of head {number} ({head.name}) have different "
                    "values"
                )
            part = "heads" if failure == BAD_HEAD_OUTPUT else "MLP"
            raise SparseError(
                f"{where}: the {part} leave {self.program.wire_at(place)} outside its range"
            )
        self._note_stats(gap, hidden)

    def _note_stats(self, gap: int, hidden: int) -> None:
        if gap < _NO_GAP:
            self._least_gap = gap if self._least_gap is None else min(self._least_gap, gap)
        self._greatest_hidden = max(self._greatest_hidden, hidden)


def _buffer(ids: npt.NDArray[np.integer], room: int) -> npt.NDArray[np.int32]:
    """Buffer (n + 1,) for n positions and the token after the last, beginning with `ids`."""
    tokens = np.zeros(room + 1, dtype=np.int32)
    tokens[: len(ids)] = ids
    return tokens


def _scratch(sizes: Sizes) -> Scratch:
    return Scratch(
        stream=np.zeros(sizes.d, dtype=np.int32),
        planes=np.zeros((2, sizes.d // 64 + 2), dtype=np.uint64),
        added=np.zeros(sizes.d, dtype=np.int32),
        touched=np.zeros(sizes.d, dtype=np.int32),
        is_touched=np.zeros(sizes.d, dtype=np.bool_),
        sums=np.zeros(MAX_SLOTS, dtype=np.int64),
        value=np.zeros(2 * (sizes.d_v // WORD + 1), dtype=np.uint64),
        scores=np.zeros(sizes.vocab_size, dtype=np.int32),
    )
