"""Checkpoints, exported model folders and imports."""
