"""Tensors and config of a GPT-NeoX that computes a `StockProgram`.

The residual stream holds the program's coordinates, `first` and `found` at their indices, followed
by the constants of LayerNorm, and the negative of each from D / 2 on, so that its mean is 0;
projections read the first of the constants as 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import GPTNeoXConfig

from compile_tm.stock.blocks import StockProgram
from compile_tm.stock.llama import (
    Tensors,
    attention_matrices,
    feed_forward_matrices,
    rotary_parameters,
)
from compile_tm.stock.norms import EPS, LAYER_NORM_CONSTANT, layer_norm_constants, layer_norm_gains
from compile_tm.stock.shape import StockShape, layer_heads
from data.model_format.names import NEOX_OUTPUT_MATRIX


def neox_config(shape: StockShape, *, bits: int, dtype: str) -> GPTNeoXConfig:
    """Return the config without the ids of special tokens."""
    return GPTNeoXConfig(
        architectures=["GPTNeoXForCausalLM"],
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.feed_forward_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        hidden_act="relu",
        max_position_embeddings=shape.max_positions,
        layer_norm_eps=EPS,
        use_parallel_residual=False,
        rope_parameters={**rotary_parameters(shape, bits), "partial_rotary_factor": 1.0},
        tie_word_embeddings=False,
        dtype=dtype,
    )


def neox_tensors(program: StockProgram, shape: StockShape) -> Tensors:
    """Yield names and fp32 tensors."""
    D, constant, half = shape.hidden_size, program.constant, shape.hidden_size // 2
    constants = slice(constant, constant + layer_norm_constants(D))
    stream_gain, constant_gain = layer_norm_gains(D)
    gain = torch.zeros(D)
    gain[:constant] = stream_gain
    gain[constants] = constant_gain
    embedding = torch.zeros(shape.vocab_size, D)
    embedding[:, : program.num_coordinates] = torch.from_numpy(program.embedding)
    embedding[:, constants] = LAYER_NORM_CONSTANT
    embedding[:, half:] = -embedding[:, : D - half]
    yield "gpt_neox.embed_in.weight", embedding
    for n, layer in enumerate(program.layers):
        prefix = f"gpt_neox.layers.{n}"
        yield from _norm(f"{prefix}.input_layernorm", gain)
        yield from _norm(f"{prefix}.post_attention_layernorm", gain)
        heads = list(layer_heads(program, n, shape.head_size))
        *projections, out = map(torch.from_numpy, attention_matrices(heads, shape))
        # Rows are ordered by head, each with its query, key and value.
        by_head = [part.view(shape.num_heads, shape.head_size, D) for part in projections]
        yield from _linear(
            f"{prefix}.attention.query_key_value", torch.stack(by_head, dim=1).reshape(-1, D)
        )
        yield from _linear(f"{prefix}.attention.dense", _with_complement(out))
        up, down = map(torch.from_numpy, feed_forward_matrices(layer, shape))
        yield from _linear(f"{prefix}.mlp.dense_h_to_4h", up)
        yield from _linear(f"{prefix}.mlp.dense_4h_to_h", _with_complement(down))
    yield from _norm("gpt_neox.final_layer_norm", gain)
    output = torch.zeros(shape.vocab_size, D)
    output[:, : program.num_coordinates] = torch.from_numpy(program.unembedding)
    yield NEOX_OUTPUT_MATRIX, output


def _with_complement(matrix: Tensor) -> Tensor:
    """Subtract the output rows of a matrix (D, ..) from the rows of the complements, in place."""
    half = len(matrix) // 2
    matrix[half:] -= matrix[: len(matrix) - half].clone()
    return matrix


def _norm(name: str, gain: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", gain
    yield f"{name}.bias", torch.zeros_like(gain)


def _linear(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", weight
    yield f"{name}.bias", torch.zeros(len(weight))
