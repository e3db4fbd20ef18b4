"""What becomes of compiled machines in practice: common kernels, and sparse attention.

kernels     torch's attention kernels in place of the definition's arithmetic
sparsity    how often one position is enough, head by head
retrieval   attention to one position that an approximate search finds
"""
