"""How many slots an engine gets: no more than there are puzzles, and than fit into free memory.

Slots grow with their sequences (`eval.engines.slots`), so what is planned is the most that they can
come to take: every slot at the longest sequence that the caps allow. Plans are made without torch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.model_format.facts import Mode
from data.model_format.precision import FORMAT_BYTES, PrecisionPolicy
from data.runtime.memory import available_memory
from eval.engines.contract import Caps
from solver.boards import Board

if TYPE_CHECKING:
    import torch

    from eval.network.model_folder import ModelFolder

BUCKET = 256
"""Capacities of slots are multiples of it, unless the model's positions end before."""
DEFAULT_SLOTS = {"cpu": 64, "cuda": 1_024}
"""Slots where memory and puzzles allow them, by type of device; more are hardly faster."""
MEMORY_SHARE = 0.7
"""Share of the free memory for the KV cache. Activations need the rest, and copies of one layer of
it, while slots grow and in a prefill."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotPlan:
    """Slots of an engine, and the KV cache that they can come to need."""

    num_slots: int
    """Sequences that are decoded at a time."""
    slot_tokens: int
    """Longest sequence of a slot, in tokens."""
    bytes_per_token: int
    """Keys and values of a token, all layers together; 0 where the engine plans for itself."""
    free_bytes: int
    """Memory that was free."""

    @property
    def max_cache_bytes(self) -> int:
        """KV cache with every slot at its longest."""
        return self.num_slots * self.slot_tokens * self.bytes_per_token

    def __str__(self) -> str:
        """One line for people."""
        slots = f"{self.num_slots:,} slot{'s' if self.num_slots != 1 else ''}"
        if not self.bytes_per_token:
            return slots
        return (
            f"{slots} of up to {self.slot_tokens:,} tokens; the KV cache takes "
            f"{self.bytes_per_token:,} bytes a token, at most "
            f"{_gigabytes(self.max_cache_bytes)} of {_gigabytes(self.free_bytes)} that are free"
        )


def plan_slots(
    *,
    num_slots: int | None,
    default: int,
    num_puzzles: int,
    slot_tokens: int,
    bytes_per_token: int,
    free_bytes: int,
) -> SlotPlan:
    """Choose the number of slots; a warning says why it is smaller than what was asked for.

    Args:
        num_slots: slots that were asked for; None for the default.
        default: slots where nothing was asked for.
        num_puzzles: puzzles to decode.
        slot_tokens: longest sequence of a slot.
        bytes_per_token: keys and values of a token; 0 for no limit on memory.
        free_bytes: memory that is free.
    """
    asked = default if num_slots is None else num_slots
    slot_bytes = slot_tokens * bytes_per_token
    fitting = int(MEMORY_SHARE * free_bytes) // slot_bytes if slot_bytes else asked
    if num_slots is not None and fitting < min(num_slots, num_puzzles):
        logger.warning(
            "num_slots: got %d, but the KV cache of one may grow to %s and %s are free: %d now",
            num_slots,
            _gigabytes(slot_bytes),
            _gigabytes(free_bytes),
            max(1, fitting),
        )
    return SlotPlan(
        num_slots=max(1, min(asked, num_puzzles, fitting)),
        slot_tokens=slot_tokens,
        bytes_per_token=bytes_per_token,
        free_bytes=free_bytes,
    )


def plan_engine_slots(
    name: str,
    folder: ModelFolder,
    *,
    precision: PrecisionPolicy,
    device: torch.device,
    num_slots: int | None,
    num_puzzles: int,
    mode: Mode,
    caps: Caps,
) -> SlotPlan:
    """Choose the number of slots of an engine before it is made.

    Args:
        name: the engine.
        folder: the model.
        precision: formats to compute in.
        device: device to compute on.
        num_slots: slots that were asked for; None for as many as suit device, memory and puzzles.
        num_puzzles: puzzles to decode.
        mode: what the model writes.
        caps: limits of a puzzle.
    """
    size = 0
    if name != "vllm" and folder.computed is not None:
        # The engine hf keeps fp32 keys whatever the precision.
        stored = "fp32" if name == "hf" else precision.cache
        size = folder.computed.cache_size * FORMAT_BYTES[stored]
    length = longest_sequence(folder.board, mode=mode, caps=caps)
    return plan_slots(
        num_slots=num_slots,
        default=DEFAULT_SLOTS.get(device.type, DEFAULT_SLOTS["cpu"]),
        num_puzzles=num_puzzles,
        slot_tokens=slot_capacity(length, max_positions=folder.max_positions),
        bytes_per_token=size,
        free_bytes=max(0, free_memory(device) - folder.weight_bytes(device)),
    )


def slot_capacity(length: int, *, max_positions: int) -> int:
    """Return the capacity to which slots grow for sequences of `length` tokens."""
    return min(-(-length // BUCKET) * BUCKET, max_positions)


def longest_sequence(board: Board, *, mode: Mode, caps: Caps) -> int:
    """Return the longest sequence in tokens that a segment can become, its prompt included."""
    prompt = 2 * board.num_cells + 2
    if mode == "scot":  # a summary is the prompt of the next segment
        prompt = max(prompt, caps.max_segment_tokens)
    return prompt + min(caps.max_segment_tokens, caps.max_new_tokens)


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device, those that torch holds in reserve included."""
    if device.type != "cuda":
        return available_memory()[0]
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + reserve


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
