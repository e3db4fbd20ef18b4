"""Number of slots of an engine, limited by the number of puzzles and by the free memory.

Slots grow with their sequences (`eval.engines.slots`); the plan assumes that each slot reaches the
longest sequence that the token limits allow. Planning does not import torch.
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
"""Capacities of slots are multiples of this, except at the context length of the model."""
DEFAULT_SLOTS = {"cpu": 64, "cuda": 1_024}
"""Default number of slots by device type; more are hardly faster."""
MEMORY_SHARE = 0.7
"""Share of the free memory for the KV cache. The rest is for activations and for the copy of one
layer of the cache while slots grow or a prompt is prefilled."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotPlan:
    """Number of slots of an engine and the size of their KV cache."""

    num_slots: int
    """Number of sequences decoded concurrently."""
    slot_tokens: int
    """Maximum length of a sequence in tokens."""
    bytes_per_token: int
    """KV cache of one token in all layers; 0 if the engine manages its own memory."""
    free_bytes: int
    """Free memory."""

    @property
    def max_cache_bytes(self) -> int:
        """Size of the KV cache when each slot has reached its maximum length."""
        return self.num_slots * self.slot_tokens * self.bytes_per_token

    def __str__(self) -> str:
        """Return a one-line summary."""
        slots = f"{self.num_slots:,} slot{'s' if self.num_slots != 1 else ''}"
        if not self.bytes_per_token:
            return slots
        return (
            f"{slots} of up to {self.slot_tokens:,} tokens; the KV cache takes "
            f"{self.bytes_per_token:,} bytes per token, at most "
            f"{_gigabytes(self.max_cache_bytes)} of {_gigabytes(self.free_bytes)} free memory"
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
    """Choose the number of slots; logs a warning if memory limits a requested number.

    Args:
        num_slots: Requested number of slots; None for the default.
        default: Default number of slots.
        num_puzzles: Number of puzzles to decode.
        slot_tokens: Maximum length of a sequence.
        bytes_per_token: KV cache per token; 0 for no limit by memory.
        free_bytes: Free memory.
    """
    requested = default if num_slots is None else num_slots
    slot_bytes = slot_tokens * bytes_per_token
    fitting = int(MEMORY_SHARE * free_bytes) // slot_bytes if slot_bytes else requested
    if num_slots is not None and fitting < min(num_slots, num_puzzles):
        logger.warning(
            "num_slots: got %d, but each may need %s of KV cache and %s are free; using %d",
            num_slots,
            _gigabytes(slot_bytes),
            _gigabytes(free_bytes),
            max(1, fitting),
        )
    return SlotPlan(
        num_slots=max(1, min(requested, num_puzzles, fitting)),
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
    """Choose the number of slots of an engine before it is loaded.

    Args:
        name: Name of the engine.
        folder: The model.
        precision: Number formats.
        device: Device of the model.
        num_slots: Requested number of slots; None to choose by device, memory and puzzles.
        num_puzzles: Number of puzzles to decode.
        mode: Output of the model.
        caps: Token limits of a puzzle.
    """
    size = 0
    if name != "vllm" and folder.network_config is not None:
        # The engine hf stores fp32 keys and values in any precision.
        stored = "fp32" if name == "hf" else precision.cache
        size = folder.network_config.cache_size * FORMAT_BYTES[stored]
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
    """Return the capacity of slots for sequences of `length` tokens."""
    return min(-(-length // BUCKET) * BUCKET, max_positions)


def longest_sequence(board: Board, *, mode: Mode, caps: Caps) -> int:
    """Return the maximum length of a segment in tokens, including its prompt."""
    prompt = 2 * board.num_cells + 2
    if mode == "scot":  # a summary is the prompt of the next segment
        prompt = max(prompt, caps.max_segment_tokens)
    return prompt + min(caps.max_segment_tokens, caps.max_new_tokens)


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device, including memory cached by PyTorch's allocator."""
    if device.type != "cuda":
        return available_memory()[0]
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + reserve


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
