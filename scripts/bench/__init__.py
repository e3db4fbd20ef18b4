"""Benchmarks; each prints a table and optionally writes JSON."""
