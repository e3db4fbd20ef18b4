"""Data sets of solver traces: segments, storage, builder, statistics and export."""
