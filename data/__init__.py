"""Segments, data sets on disk and the builder: puzzles in, training data out."""
