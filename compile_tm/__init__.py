"""Compiler from automata, Turing machines and a Sudoku solver to transformers."""
