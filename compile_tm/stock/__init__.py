"""Compiled programs as stock Hugging Face models: Llama and GPT-NeoX without custom code.

blocks         a transformer without norms: heads of score rows, neurons, embeddings
positions      layers that extract the position from rotary encodings
attention      heads of a program as heads of one width
norms          RMSNorm and LayerNorm as the identity, and a constant for biases
feed_forward   ReLU, and SwiGLU as ReLU
assemble       a compiled machine or solver as blocks
shape          widths of a stock model, and its size by formula
llama, neox    tensors and config of an architecture
"""
