"""Tensors and config of a Llama that computes a `StockProgram`.

The residual stream holds the program's coordinates, `first` and `found` at their indices, followed
by the constants of RMSNorm; projections read the first of these as 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig

from compile_tm.stock.attention import GAP
from compile_tm.stock.blocks import Floats, Form, StockHead, StockLayer, StockProgram
from compile_tm.stock.feed_forward import BETA
from compile_tm.stock.norms import EPS, RMS_CONSTANT, rms_constants, rms_gains
from compile_tm.stock.positions import rotary_factors
from compile_tm.stock.shape import StockShape, layer_heads

Tensors = Iterator[tuple[str, Tensor]]


def rotary_parameters(shape: StockShape, bits: int) -> dict[str, object]:
    """Return `rope_parameters` with explicit frequencies, independent of a base."""
    factors = rotary_factors(bits, shape.head_size // 2)
    return {
        "rope_type": "longrope",
        "rope_theta": 1.0,
        "factor": 1.0,
        "short_factor": factors,
        "long_factor": factors,
        "original_max_position_embeddings": shape.max_positions,
    }


def query_scale(head_size: int) -> float:
    """Return the scale of queries: G sqrt(head_size), rounded up to a power of two."""
    return 2.0 ** math.ceil(math.log2(GAP * math.sqrt(head_size)))


def llama_config(shape: StockShape, *, bits: int, dtype: str) -> LlamaConfig:
    """Return the config without the ids of special tokens."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.feed_forward_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_heads,
        head_dim=shape.head_size,
        hidden_act="silu",
        max_position_embeddings=shape.max_positions,
        rms_norm_eps=EPS,
        rope_parameters=rotary_parameters(shape, bits),
        attention_bias=False,
        mlp_bias=False,
        tie_word_embeddings=False,
        dtype=dtype,
    )


def llama_tensors(program: StockProgram, shape: StockShape) -> Tensors:
    """Yield names and fp32 tensors; bf16 represents all weights exactly."""
    D, constant = shape.hidden_size, program.constant
    num_held = rms_constants(D)
    stream_gain, constant_gain = rms_gains(D)
    gain = torch.full((D,), stream_gain)
    gain[constant : constant + num_held] = constant_gain
    embedding = torch.zeros(shape.vocab_size, D)
    embedding[:, :constant] = torch.from_numpy(program.embedding[:, :constant])
    embedding[:, constant : constant + num_held] = RMS_CONSTANT
    yield "model.embed_tokens.weight", embedding
    for n, layer in enumerate(program.layers):
        prefix = f"model.layers.{n}"
        yield f"{prefix}.input_layernorm.weight", gain
        heads = list(layer_heads(program, n, shape.head_size))
        q, k, v, o = attention_matrices(heads, shape)
        for name, matrix in (("q", q), ("k", k), ("v", v), ("o", o)):
            yield f"{prefix}.self_attn.{name}_proj.weight", torch.from_numpy(matrix)
        yield f"{prefix}.post_attention_layernorm.weight", gain
        up, down = feed_forward_matrices(layer, shape)
        gate = torch.from_numpy(up) * BETA
        linear = torch.zeros_like(gate)
        linear[: layer.num_neurons, constant] = 1 / BETA
        yield f"{prefix}.mlp.gate_proj.weight", gate
        yield f"{prefix}.mlp.up_proj.weight", linear
        yield f"{prefix}.mlp.down_proj.weight", torch.from_numpy(down)
    yield "model.norm.weight", gain
    output = torch.zeros(shape.vocab_size, D)
    output[:, : program.num_coordinates] = torch.from_numpy(program.unembedding)
    yield "lm_head.weight", output


def attention_matrices(
    heads: list[StockHead], shape: StockShape
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the projections of queries, keys, values (H h, D) and outputs (D, H h) of a layer.

    Pair k of a head consists of the dimensions k and k + h/2; score rows use the last pairs, whose
    frequency is 0.
    """
    size, half = shape.head_size, shape.head_size // 2
    inner = shape.num_heads * size
    q, k, v = (np.zeros((inner, shape.hidden_size), dtype=np.float32) for _ in range(3))
    o = np.zeros((shape.hidden_size, inner), dtype=np.float32)
    scale = query_scale(size)
    free = [dim for pair in reversed(range(half)) for dim in (pair, pair + half)]
    for number, head in enumerate(heads):
        base = number * size
        for dim, row in zip(free, head.score_rows, strict=False):
            _set_row(q, base + dim, row.query, scale)
            _set_row(k, base + dim, row.key)
        for turned in head.rotary_rows:
            _set_row(q, base + turned.pair, turned.query, scale)
            for dim, form in zip((turned.pair, turned.pair + half), turned.key, strict=True):
                _set_row(k, base + dim, form)
        for place, (value, output) in enumerate(zip(head.values, head.outputs, strict=True)):
            _set_row(v, base + place, value)
            o[output, base + place] = 1
    return q, k, v, o


def feed_forward_matrices(layer: StockLayer, shape: StockShape) -> tuple[Floats, Floats]:
    """Return input weights (d_ff, D), with biases in the constant's column, and output weights."""
    up = np.zeros((shape.feed_forward_size, shape.hidden_size), dtype=np.float32)
    down = np.zeros((shape.hidden_size, shape.feed_forward_size), dtype=np.float32)
    up[layer.up.neuron, layer.up.coordinate] = layer.up.weight
    down[layer.down.coordinate, layer.down.neuron] = layer.down.weight
    return up, down


def _set_row(matrix: Floats, row: int, form: Form, scale: float = 1.0) -> None:
    for coordinate, weight in form.items():
        matrix[row, coordinate] = weight * scale
