"""Sources of puzzles: files, the hub, the generator; overlaps between sets."""
