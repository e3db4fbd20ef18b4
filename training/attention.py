"""Causal attention over whole sequences: four implementations, chosen once and by name.

    name     batches  runs on                  how
    padded   padded   anything                 torch's SDPA, causal; right padding needs no mask
    looped   packed   anything                 SDPA on one sequence after the other
    varlen   packed   CUDA, 16-bit types       torch's varlen_attn (FlashAttention), one kernel
    flex     packed   CUDA, any type           flex_attention with a block mask per batch

They are registered with transformers under `sudocot_<name>`, and transformers builds no mask for
them, so nothing but this module decides who sees whom. They are for training and scoring: no key
cache and no left padding, which they would not see; an exported model uses transformers' own.
`forward_logits` refuses a batch of the wrong form, and `check_no_leak` proves on the real model
and a real batch that no sequence sees another or its own future.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel

if TYPE_CHECKING:
    from training.batches import Batch
    from training.precision import PrecisionPolicy

AttentionName = Literal["padded", "looped", "varlen", "flex"]

_PREFIX = "sudocot_"
_FLEX_BLOCK = 128
# torch 2.10 has `is_causal`; later versions say the same with a window.
_VARLEN_CAUSAL: dict[str, Any] = (
    {"is_causal": True}
    if "is_causal" in inspect.signature(varlen_attn).parameters
    else {"window_size": (-1, 0)}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One implementation and what it needs."""

    name: AttentionName
    """Name on the command line."""
    is_packed: bool
    """Form of the batches it takes: packed or padded."""
    needs_cuda: bool = False
    """Whether it runs on CUDA devices only."""
    activations: tuple[str, ...] = ("fp32", "bf16")
    """Types of activations it takes."""

    @property
    def registered_name(self) -> str:
        """Name that transformers knows it by."""
        return _PREFIX + self.name


ATTENTIONS: dict[str, Attention] = {
    attention.name: attention
    for attention in (
        Attention(name="padded", is_packed=False),
        Attention(name="looped", is_packed=True),
        Attention(name="varlen", is_packed=True, needs_cuda=True, activations=("bf16",)),
        Attention(name="flex", is_packed=True, needs_cuda=True),
    )
}


def choose_attention(
    name: str | None = None, *, device: torch.device, precision: PrecisionPolicy
) -> Attention:
    """Return the implementation called `name`, or the fastest one for device and precision.

    Raises:
        ValueError: no such name, or the device or the precision does not allow it.
    """
    if name is None:
        packed = "varlen" if precision.activations == "bf16" else "flex"
        name = packed if device.type == "cuda" else "padded"
    if name not in ATTENTIONS:
        raise ValueError(f"attention: got {name!r}, allowed are {', '.join(ATTENTIONS)}")
    attention = ATTENTIONS[name]
    if attention.needs_cuda and device.type != "cuda":
        raise ValueError(f"attention {name}: got device {device.type}, allowed is cuda")
    if precision.activations not in attention.activations:
        raise ValueError(
            f"attention {name}: got {precision.activations} activations, "
            f"allowed are {', '.join(attention.activations)}"
        )
    return attention


def use_attention(model: PreTrainedModel, attention: Attention) -> None:
    """Make `model` use an implementation; do so before it is wrapped or compiled."""
    model.set_attn_implementation(attention.registered_name)


def attention_of(model: nn.Module) -> Attention:
    """Return the implementation that a model uses; DDP, FSDP and compiled models are looked into.

    Raises:
        ValueError: the model uses none of this module.
    """
    inner: Any = getattr(model, "module", model)
    name: str = inner.config._attn_implementation
    if not name.startswith(_PREFIX):
        raise ValueError(f"attention: the model uses {name!r}; call use_attention first")
    return ATTENTIONS[name.removeprefix(_PREFIX)]


def forward_logits(model: nn.Module, batch: Batch) -> Tensor:
    """Run the model over whole sequences.

    Returns:
        Logits of shape (B, T, V) for a padded batch, (1, T, V) for a packed one.

    Raises:
        ValueError: the batch is packed and the model's attention is not, or the reverse; it would
            see across sequences.
    """
    attention = attention_of(model)
    if batch.is_packed != attention.is_packed:
        forms = {True: "packed", False: "padded"}
        raise ValueError(
            f"attention {attention.name}: got a {forms[batch.is_packed]} batch, "
            f"allowed is a {forms[attention.is_packed]} one"
        )
    extra: dict[str, Any] = {}
    if batch.cu_seqlens is not None:
        extra = {"cu_seqlens": batch.cu_seqlens, "max_length": batch.max_length}
        if attention.name == "flex":
            extra = {"block_mask": causal_block_mask(batch.cu_seqlens, batch.input_ids.shape[1])}
    output = model(
        input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False, **extra
    )
    logits: Tensor = output.logits
    return logits


def causal_block_mask(cu_seqlens: Tensor, num_positions: int) -> BlockMask:
    """Build the mask of a packed batch from the borders alone, without the T x T matrix.

    The blocks that a block of queries can see are consecutive: from the block in which the
    sequence of its first query begins, to itself.

    Args:
        cu_seqlens: borders of the sequences, int32 (max_sequences + 1,).
        num_positions: T.
    """
    positions = torch.arange(num_positions, device=cu_seqlens.device, dtype=torch.int32)
    sequence = torch.bucketize(positions, cu_seqlens[1:], right=True)

    def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (sequence[query] == sequence[key]) & (query >= key)

    first_block = cu_seqlens[sequence[::_FLEX_BLOCK]] // _FLEX_BLOCK
    own_block = positions[: len(first_block)]
    block_indices = (first_block[:, None] + own_block).clamp(max=len(first_block) - 1)
    return BlockMask.from_kv_blocks(
        (own_block - first_block + 1)[None, None].to(torch.int32),
        block_indices[None, None].to(torch.int32),
        BLOCK_SIZE=_FLEX_BLOCK,
        mask_mod=sees,
        seq_lengths=(num_positions, num_positions),
    )


@torch.no_grad()
def check_no_leak(model: PreTrainedModel, batch: Batch) -> None:
    """Prove that no token of `batch` sees another sequence or its own future.

    The second half of the first sequence (or padded row) is replaced, and the output of every
    attention layer must stay the same, bit for bit, everywhere else. It is looked at before it is
    projected, so that the proof holds for a model whose projections are still zero too.

    Args:
        model: the model itself, neither wrapped nor compiled, on the device of the batch.
        batch: a batch of the form that its attention takes.

    Raises:
        RuntimeError: something leaks; the message names the layer.
    """
    # A padded row ends with the batch: what follows its sequence is padding, which may see it.
    end = batch.input_ids.shape[1] if batch.cu_seqlens is None else int(batch.cu_seqlens[1])
    changed = batch.input_ids.clone()
    changed[0, end // 2 : end] = (changed[0, end // 2 : end] + 1) % model.config.vocab_size
    may_change = torch.zeros_like(changed, dtype=torch.bool)
    may_change[0, end // 2 : end] = True
    before = _attention_outputs(model, batch)
    after = _attention_outputs(model, dataclasses.replace(batch, input_ids=changed))
    for name, output in before.items():
        if not torch.equal(output[~may_change], after[name][~may_change]):
            raise RuntimeError(f"attention {attention_of(model).name} leaks at {name}")


def _attention_outputs(model: PreTrainedModel, batch: Batch) -> dict[str, Tensor]:
    """Outputs (B, T, d) of all attention layers, by the name of the projection they go into."""
    outputs: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_pre_hook(
            lambda _module, inputs, name=name: outputs.update({name: inputs[0]})
        )
        for name, module in model.named_modules()
        if name.endswith(("self_attn.o_proj", "attention.dense"))
    ]
    assert hooks, "no attention layer found"
    forward_logits(model, batch)
    for hook in hooks:
        hook.remove()
    return outputs


# Shapes of the functions below: query, key, value (B, H, T, D) in; output (B, T, H, D).
# Rotary phases are fp32, so under autocast queries and keys arrive in fp32 beside bf16 values.


def _padded_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: None,
    *,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    if query.shape != key.shape:
        raise ValueError(
            f"training attention: got {query.shape[2]} queries for {key.shape[2]} keys, "
            "allowed are whole sequences; to generate, load the exported model"
        )
    query, key = query.to(value.dtype), key.to(value.dtype)
    output = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling
    )
    return output.transpose(1, 2), None


def _looped_attention(
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
    lengths = [length for length in cu_seqlens.diff().tolist() if length > 0]
    parts = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    outputs = [
        _padded_attention(module, q, k, v, attention_mask, scaling=scaling)[0]
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(outputs, dim=1), None


def _varlen_attention(
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
    query_THD, key_THD, value_THD = (
        tensor.squeeze(0).transpose(0, 1).to(value.dtype) for tensor in (query, key, value)
    )
    borders = (cu_seqlens, cu_seqlens, max_length, max_length)
    attend: Any = varlen_attn  # its options differ between versions
    output_THD: Tensor = attend(
        query_THD, key_THD, value_THD, *borders, scale=scaling, **_VARLEN_CAUSAL
    )
    return output_THD.unsqueeze(0), None


def _flex_attention(
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
    # Uncompiled, flex_attention holds the whole T x T matrix: only right for tests on a CPU.
    is_compiled = torch.compiler.is_compiling() or not query.is_cuda
    attend: Any = flex_attention if is_compiled else _compiled_flex()
    query, key = query.to(value.dtype), key.to(value.dtype)
    output = attend(query, key, value, block_mask=block_mask, scale=scaling)
    return output.transpose(1, 2), None


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


_FUNCTIONS: dict[AttentionName, Callable[..., tuple[Tensor, None]]] = {
    "padded": _padded_attention,
    "looped": _looped_attention,
    "varlen": _varlen_attention,
    "flex": _flex_attention,
}
for _name, _function in _FUNCTIONS.items():
    AttentionInterface.register(_PREFIX + _name, _function)
