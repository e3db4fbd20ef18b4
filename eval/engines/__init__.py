"""Engines: greedy decoding of puzzles, behind the contract of `eval.engines.contract`."""
