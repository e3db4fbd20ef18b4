"""Attention functions of `training.models.attention`, one per implementation.

transformers calls them with query, key and value of shape (B, H, T, D) and expects (B, T, H, D).
Rotary embeddings are fp32, so under autocast queries and keys are fp32 while values are bf16. The
mask argument of transformers is always None.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.attention.varlen import varlen_attn

_FLEX_BLOCK = 128
_CAUSAL_WINDOW = (-1, 0)
_LONGEST_BY_MATRICES = 1_024


def attend_padded(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention over right-padded rows.

    Raises:
        ValueError: Queries and keys differ in shape, as in decoding with a KV cache.
    """
    if query.shape != key.shape:
        raise ValueError(
            f"training attention: got {query.shape[2]} queries for {key.shape[2]} keys, "
            "allowed are whole sequences; to generate, load the exported model"
        )
    query, key = query.to(value.dtype), key.to(value.dtype)
    if attends_by_matrices(value.shape[2], value.device, is_bf16=value.dtype == torch.bfloat16):
        output = _attend_by_matrices(query, key, value, scale=scaling, mask=attention_mask)
    else:
        output = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling
        )
    return output.transpose(1, 2), None


def attends_by_matrices(length: int, device: torch.device, *, is_bf16: bool) -> bool:
    """Whether attention with full score matrices is faster than SDPA.

    With 8 heads of 32 on a core with AMX, forward and backward together take 8 ms (SDPA: 40) at
    T = 160, 18 ms (36) at 340, and 89 ms (46) at 1,000.
    """
    return is_bf16 and device.type == "cpu" and length <= _LONGEST_BY_MATRICES


def _attend_by_matrices(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """Causal attention as two matrix products around a softmax.

    Args:
        query: (B, H, T, D), as key and value.
        key: Keys.
        value: Values.
        scale: Scaling factor of the scores.
        mask: fp32 (T, T), added to the scores in fp32, which is fast if compiled into one loop
            with the softmax; None adds a causal mask in the matrix product.
    """
    batch, heads, length, _ = query.shape
    if mask is None:
        mask = query.new_full((length, length), -math.inf).triu(1).expand(batch * heads, -1, -1)
        scores = torch.baddbmm(mask, query.flatten(0, 1), key.flatten(0, 1).mT, alpha=scale)
    else:
        products = torch.bmm((query * scale).flatten(0, 1), key.flatten(0, 1).mT)
        scores = products.float() + mask
    weights = torch.softmax(scores, dim=-1).to(value.dtype)
    output: Tensor = torch.bmm(weights, value.flatten(0, 1))
    return output.view(batch, heads, length, -1)


def attend_looped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seqlens: Tensor,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention over packed sequences, one after the other."""
    lengths = [length for length in cu_seqlens.diff().tolist() if length > 0]
    parts = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    outputs = [
        attend_padded(module, q, k, v, attention_mask, scaling=scaling)[0]
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(outputs, dim=1), None


def attend_varlen(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: None,
    *,
    scaling: float,
    cu_seqlens: Tensor,
    max_length: int,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention over packed sequences in one variable-length FlashAttention kernel."""
    query_THD, key_THD, value_THD = (
        tensor.squeeze(0).transpose(0, 1).to(value.dtype) for tensor in (query, key, value)
    )
    lengths = (cu_seqlens, cu_seqlens, max_length, max_length)
    output_THD = varlen_attn(
        query_THD, key_THD, value_THD, *lengths, scale=scaling, window_size=_CAUSAL_WINDOW
    )
    assert isinstance(output_THD, Tensor)  # a tuple only if auxiliary outputs are requested
    return output_THD.unsqueeze(0), None


def attend_flex(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: None,
    *,
    scaling: float,
    block_mask: BlockMask,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention over packed sequences in one Triton kernel that skips fully masked blocks."""
    # Uncompiled, flex_attention materializes the T x T matrix, which is only for tests on a CPU.
    is_compiled = torch.compiler.is_compiling() or not query.is_cuda
    attend: Any = flex_attention if is_compiled else _compiled_flex()
    query, key = query.to(value.dtype), key.to(value.dtype)
    output = attend(query, key, value, block_mask=block_mask, scale=scaling)
    return output.transpose(1, 2), None


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


def causal_block_mask(cu_seqlens: Tensor, num_positions: int) -> BlockMask:
    """Build the block mask of a packed batch from `cu_seqlens`, without a T x T mask.

    A block of queries attends to consecutive blocks: from the block in which the sequence of its
    first query begins, to itself.

    Args:
        cu_seqlens: Cumulative sequence lengths, int32 (max_sequences + 1,).
        num_positions: T.
    """
    positions = torch.arange(num_positions, device=cu_seqlens.device, dtype=torch.int32)
    sequence = torch.bucketize(positions, cu_seqlens[1:], right=True)

    def is_visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (sequence[query] == sequence[key]) & (query >= key)

    first_block = cu_seqlens[sequence[::_FLEX_BLOCK]] // _FLEX_BLOCK
    own_block = positions[: len(first_block)]
    block_indices = (first_block[:, None] + own_block).clamp(max=len(first_block) - 1)
    return BlockMask.from_kv_blocks(
        (own_block - first_block + 1)[None, None].to(torch.int32),
        block_indices[None, None].to(torch.int32),
        BLOCK_SIZE=_FLEX_BLOCK,
        mask_mod=is_visible,
        seq_lengths=(num_positions, num_positions),
    )
