"""Tests of `compile_tm`."""
