"""Programs for hardmax transformers: registers, flags, attention heads and MLP gadgets in layers.

This is the paper's Appendix "General Construction Methods for Hardmax Transformers". Nothing here
depends on machines.

    registers       named coordinates of the residual stream, conditions on their values
    wires           declarations of registers and flags
    neurons         hidden neurons as sparse arrays
    gadgets         lemmas on copying, zeroing and tables, one function each
    arithmetic      lemmas on numbers in registers
    builder         heads and gadgets in layers, embeddings, unembeddings
    conflicts       detection of two writers of one coordinate
    program         the finished program
    dense           its weights as the matrices of the definition
    register_file   registers.json
    compiled        protocol of compiled machines and solvers
"""
