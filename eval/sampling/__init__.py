"""Sampling of the puzzles to evaluate."""
