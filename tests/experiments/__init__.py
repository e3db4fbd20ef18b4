"""Tests of the paper's recipes."""
