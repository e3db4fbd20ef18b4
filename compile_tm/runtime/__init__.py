"""Runtimes of programs.

trace          oracle in numpy: every register after every layer
sparse         exact greedy decoding by lookups; sparse_plan, sparse_memory, sparse_kernel,
               sparse_batch (teacher forcing)
transformer    torch: hardmax attention, or softmax with rounding; modules
generation     CoT and SCoT generation with any of them
"""
