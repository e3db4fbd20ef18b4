"""The MRV backtracking solver and its traces (paper, "Datasets and Tokenization")."""

from solver.mrv.tracer import Status, Trace, cot_length, resume, trace

__all__ = ["Status", "Trace", "cot_length", "resume", "trace"]
