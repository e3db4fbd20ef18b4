"""Compiled machines with common attention kernels and sparse attention.

kernels     torch's attention kernels
sparsity    number of tied positions per head
retrieval   attention to one position, found by approximate nearest-neighbor search
"""
