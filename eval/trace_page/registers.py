"""What the registers of a compiled model hold at the tokens of a trace: forward passes, read out.

A segment is a pass of its own: the model reads its prompt again. So a summary is read twice, by the
segment that it ends, where the model writes it, and by the next one, where it is the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from eval.trace_page.register_facts import NUMBER_KINDS, Register
from solver.vocabulary import SUMMARY, Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_REGISTER_TOKENS = 4096
"""Tokens whose registers a page holds by default, about 400 bytes each on a 9x9 board."""
_CHUNK = 256
"""Positions whose residual streams are held at a time."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """What the model reads of one segment: all but its last token."""

    start: int
    """Place of its first token in the stream of all tokens."""
    prompt_length: int
    """Tokens of the prompt."""
    ids: Tokens
    """Prompt and generated ids, shape (n,)."""
    rows: Flags
    """What the registers hold at the first tokens, shape (m, bits), m < n."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Readings:
    """Registers at the tokens of a trace.

    The bits of a row are those of the registers, one after the other: flags as they are; of a
    number first whether there is one, then its bits.
    """

    registers: tuple[Register, ...]
    """What they mean."""
    num_layers: int
    """Depth of the model."""
    passes: tuple[Pass, ...]
    """One for each segment, up to the last token that was read."""

    @property
    def num_tokens(self) -> int:
        """First tokens of the stream that have rows."""
        return self.passes[-1].start + len(self.passes[-1].rows) if self.passes else 0

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each register in a row."""
        return tuple(len(r.coordinates) + (r.kind in NUMBER_KINDS) for r in self.registers)

    def flags(self, part: Pass, name: str) -> Flags:
        """Flags (m, w) of a register, or of a number whether there is one and its bits."""
        index = [register.name for register in self.registers].index(name)
        end = list(accumulate(self.widths))[index]
        return part.rows[:, end - self.widths[index] : end]

    def numbers(self, part: Pass, name: str) -> npt.NDArray[np.int64]:
        """Numbers (m,) of a register, -1 for none."""
        flags = self.flags(part, name)
        numbers = flags[:, 1:] @ (1 << np.arange(flags.shape[1] - 1))
        return np.where(flags[:, 0], numbers, -1)


def read_registers(
    model: PreTrainedModel,
    registers: tuple[Register, ...],
    *,
    prompt: Tokens,
    segments: Sequence[Tokens],
    max_tokens: int = MAX_REGISTER_TOKENS,
) -> Readings:
    """Run a model over its own trace.

    Args:
        model: The model, in fp32 on the CPU.
        registers: What its registers mean.
        prompt: The input block.
        segments: Generated ids of each segment.
        max_tokens: Tokens at most whose registers are kept, prompts of segments included.

    Raises:
        ValueError: the model has too few layers or coordinates for the registers, or one of them
            changes between the layers in which it should stay.
    """
    passes: list[Pass] = []
    start, left = 0, max_tokens
    num_layers = int(model.config.num_hidden_layers)
    for generated in segments:
        ids = np.concatenate([prompt, generated])
        count = min(left, len(ids) - 1)
        if count < len(prompt):
            break
        rows = _read(model, registers, ids[:count])
        passes.append(Pass(start=start, prompt_length=len(prompt), ids=ids, rows=rows))
        left -= count
        summary = np.flatnonzero(ids == SUMMARY)
        begin = int(summary[-1]) if len(summary) else 0
        start, prompt = start + begin, ids[begin:]
    return Readings(registers=registers, num_layers=num_layers, passes=tuple(passes))


def _read(model: PreTrainedModel, registers: tuple[Register, ...], ids: Tokens) -> Flags:
    """Rows (n, bits)."""
    chunks = []
    for streams in _residual_streams(model, ids):
        _check_shape(registers, streams)
        parts = []
        for register in registers:
            place = list(register.coordinates)
            first, last = (
                _bits(streams[layer][:, place], register.kind)
                for layer in (register.first, register.last)
            )
            if (first != last).any():
                raise ValueError(
                    f"{register.name}: changes after layer {register.first}, should stay to "
                    f"{register.last}"
                )
            parts.append(first)
        chunks.append(np.concatenate(parts, axis=1))
    return np.concatenate(chunks)


def _bits(values: npt.NDArray[np.float32], kind: str) -> Flags:
    if kind not in NUMBER_KINDS:
        return values > 0.5
    is_number = (np.abs(values) > 0.5).all(axis=1, keepdims=True)
    return np.concatenate([is_number, is_number & (values > 0)], axis=1)


def _residual_streams(
    model: PreTrainedModel, ids: Tokens
) -> Iterator[list[npt.NDArray[np.float32]]]:
    """Residual streams (m, d), embedding first, of some tokens after others."""
    import torch
    from transformers import DynamicCache

    from eval.network.transformers_model import CACHE_ARGUMENT

    run, cache = cast("Any", model), DynamicCache()
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    for start in range(0, len(ids), _CHUNK):
        with torch.inference_mode():
            output = run(
                tokens[:, start : start + _CHUNK],
                use_cache=True,
                output_hidden_states=True,
                **{CACHE_ARGUMENT: cache},
            )
        yield [stream[0].numpy() for stream in output.hidden_states]


def _check_shape(registers: tuple[Register, ...], streams: list[npt.NDArray[np.float32]]) -> None:
    layer = max(register.last for register in registers)
    coordinate = max(max(register.coordinates) for register in registers)
    for name, got, size in (
        ("layers", layer, len(streams)),
        ("coordinates", coordinate, streams[0].shape[1]),
    ):
        if got >= size:
            raise ValueError(f"registers: {name}: got {got}, allowed are 0 to {size - 1}")
