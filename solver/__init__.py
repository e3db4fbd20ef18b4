"""Sudoku boards, puzzles and the MRV backtracking solver with its traces.

Glossary of terms used throughout the packages:

board           grid of boxes with `box_rows` x `box_cols` cells: 2x2, 2x3, 3x3, 4x4
cell            row-major index from 0; written (r,c) from 1
digit           1..side; 0 for a blank cell
givens          the grid of a puzzle: uint8 digits, 0 for blank
candidates      digits possible for a cell; as a mask, bit d-1 is digit d
trace line      a coordinate, then the cell's remaining candidates, or `<none>`
decision stack  the latest trace line of each cell on the active search path
CoT length      tokens of the whole sequence: input, trace and output
segment         one SCoT sequence: a prompt, trace lines, then a summary or the output
summary         givens and decision stack between `<summary>` and `</summary>`
prompt          the given part of a segment, excluded from the loss
loss token      a token outside the prompt
N               cut-off on the CoT length
"""
