"""Selects the slots for a network and imports them on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eval.engines.slots.base import Slots
    from eval.network.types import TokenNetwork


def make_slots(network: TokenNetwork, *, num_slots: int) -> Slots:
    """Return `HostSlots` if the network supports mixed batches, else `DeviceSlots`.

    Args:
        network: The network.
        num_slots: Number of sequences decoded concurrently.
    """
    if network.supports_mixed_batches:
        from eval.engines.slots.host import HostSlots

        return HostSlots(network, num_slots=num_slots)
    from eval.engines.slots.device import DeviceSlots

    return DeviceSlots(network, num_slots=num_slots)
