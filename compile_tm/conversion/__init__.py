"""Conversion of hardmax programs to softmax transformers with rounding.

This is the paper's Section "Softmax Transformers and Rounding" with its appendix.

    bounds      smallest scale c of queries and keys, and the errors that remain
    settings    rounding formats, denoised layers, conditions of the theorems
    weights     matrices of a converted transformer
    rope/       rotary embeddings in place of the positional embedding
    convert     choice of c and of the denoised layers

`compile_tm.runtime.transformer` runs converted transformers.
"""
