"""Tests of `eval`."""
