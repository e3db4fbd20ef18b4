"""Reads the registers of a compiled model at the tokens of a trace by forward passes.

Each segment is a separate pass. A summary is therefore processed twice: at the end of the segment
that generates it, and as the prompt of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from eval.trace_page.register_facts import NUMBER_KINDS, Register
from solver.vocabulary import SUMMARY, Tokens, suffix_from_last

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_REGISTER_TOKENS = 4096
"""Default number of tokens with registers, of about 400 bytes each on a 9x9 board."""
_CHUNK = 256
"""Number of positions per forward pass, which bounds the memory of the residual streams."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pass:
    """Register values of one segment."""

    start: int
    """Index of the first token in the token stream."""
    prompt_length: int
    """Number of prompt tokens."""
    ids: Tokens
    """Prompt and generated ids, shape (n,)."""
    rows: Flags
    """Register values at the first m < n tokens, shape (m, num_bits)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Readings:
    """Register values at the tokens of a trace.

    A row concatenates the bits of all registers: flags as they are; for a number, whether it is
    present, then its bits.
    """

    registers: tuple[Register, ...]
    """The registers."""
    num_layers: int
    """Number of layers of the model."""
    passes: tuple[Pass, ...]
    """One pass per segment."""

    @property
    def num_tokens(self) -> int:
        """Number of leading tokens of the stream with register values."""
        return self.passes[-1].start + len(self.passes[-1].rows) if self.passes else 0

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of bits of each register in a row."""
        return tuple(len(r.coordinates) + (r.kind in NUMBER_KINDS) for r in self.registers)

    def flags(self, part: Pass, name: str) -> Flags:
        """Return the bits (m, width) of a register."""
        index = [register.name for register in self.registers].index(name)
        end = list(accumulate(self.widths))[index]
        return part.rows[:, end - self.widths[index] : end]

    def numbers(self, part: Pass, name: str) -> npt.NDArray[np.int64]:
        """Return the numbers (m,) of a register, -1 if not present."""
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
    """Run a model over a trace and read its registers.

    Args:
        model: The model, in fp32 on the CPU.
        registers: Registers of the model.
        prompt: The input block.
        segments: Generated ids of each segment.
        max_tokens: Maximum number of tokens, including prompts of segments.

    Raises:
        ValueError: The model has too few layers or coordinates for the registers, or a register
            changes between its first and last layer.
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
        summary = suffix_from_last(ids, SUMMARY)
        if summary is None:  # the last segment
            break
        start, prompt = start + len(ids) - len(summary), summary
    return Readings(registers=registers, num_layers=num_layers, passes=tuple(passes))


def _read(model: PreTrainedModel, registers: tuple[Register, ...], ids: Tokens) -> Flags:
    """Return the register values (n, num_bits) of a sequence."""
    chunks = []
    for streams in _residual_streams(model, ids):
        _check_shape(registers, streams)
        parts = []
        for register in registers:
            coordinates = list(register.coordinates)
            first, last = (
                _bits(streams[layer][:, coordinates], register.kind)
                for layer in (register.first, register.last)
            )
            if (first != last).any():
                raise ValueError(
                    f"{register.name}: changes after layer {register.first}, allowed only after "
                    f"layer {register.last}"
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
    """Yield the residual streams (m, hidden_size), embedding first, in chunks of tokens."""
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
