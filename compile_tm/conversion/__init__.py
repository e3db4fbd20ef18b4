"""Hardmax programs as softmax transformers with rounding.

This is the paper's Section "Softmax Transformers and Rounding", with its appendix.

    bounds      how large the scale c of queries and keys must be, and what errors it leaves
    conversion  which c, which layers are denoised, where what is rounded to
    weights     the converted transformer's matrices
    tightness   the bounds against what is really needed, and where too small a c fails

The transformers run in `compile_tm.runtime.softmax`.
"""
