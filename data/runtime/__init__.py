"""Utilities for long-running commands: files, locks, signals, progress, threads, provenance."""
