"""Generating, mining and counting puzzles."""
