"""Programs for hardmax transformers: registers, flags, attention heads and MLP gadgets in layers.

This layer is the paper's Appendix "General Construction Methods for Hardmax Transformers". It knows
nothing of machines: whoever can say what a token needs, and from which earlier token it can be
had, can write a program in it.

    registers   names for coordinates of the residual stream, and conditions on their contents
    neurons     hidden neurons as sparse arrays, and what they may write when
    gadgets     the lemmas on copying, zeroing and tables, one function each
    arithmetic  the lemmas on numbers in registers
    builder     placing heads and gadgets in layers, embeddings, unembeddings
    conflicts   who may write where
    program     the finished program
    dense       its weights as the matrices of the definition
"""
