"""Slots in which segments are decoded side by side, on the host or on a device."""
