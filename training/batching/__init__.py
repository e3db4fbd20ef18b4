"""Batches: sampling of rows, packing and padding, usage counts."""
