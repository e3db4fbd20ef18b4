"""Compiled programs as stock Hugging Face models, Llama and GPT-NeoX, without custom code.

blocks         intermediate form: a transformer without norms and widths
positions      layers that extract the position from rotary embeddings
attention      heads of a program as softmax heads of one width
norms          RMSNorm and LayerNorm as the identity, with a constant for biases
feed_forward   SwiGLU as ReLU
assemble       a compiled program as blocks
shape          widths and size of a stock model by formula
llama, neox    tensors and config of an architecture
source         compiled.json
folder, card   the model folder
registers      registers.json
self_test      words and puzzles with their expected tokens
observe        activations of a stock model
check          comparison of a folder with the program
probe          values of registers as tables
"""
