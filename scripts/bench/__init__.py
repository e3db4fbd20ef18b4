"""Benchmarks: each prints a table and writes JSON, ratios against a baseline in the same run."""
