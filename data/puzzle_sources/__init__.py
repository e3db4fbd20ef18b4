"""Puzzle sources: files, the hub, the generator; overlaps between sets of puzzles."""
