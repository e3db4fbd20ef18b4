"""Command line, launch scripts and benchmarks: wiring only."""
