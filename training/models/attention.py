"""Causal attention over whole sequences: four implementations, selected by name.

    name     batches  devices and dtypes       implementation
    padded   padded   any                      causal SDPA; right padding needs no mask
    looped   packed   any                      SDPA on one sequence after the other
    varlen   packed   CUDA, 16-bit dtypes      torch's varlen_attn (FlashAttention), one kernel
    flex     packed   CUDA, any dtype          flex_attention with a block mask per batch

They are registered with transformers under `sudocot_<name>`. transformers builds no mask for them,
so `training.models.attention_kernels` alone defines the mask. They are for training and scoring and
support neither a KV cache nor left padding; an exported model uses the attention of transformers.
`forward_logits` rejects a batch of the wrong layout, and `check_no_leak` verifies on the actual
model and batch that no token attends to another sequence or to its own future.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from training.batching.shapes import AttentionName
from training.models.attention_kernels import (
    attend_flex,
    attend_looped,
    attend_padded,
    attend_varlen,
    causal_block_mask,
)

if TYPE_CHECKING:
    from data.model_format.precision import PrecisionPolicy
    from training.batching.batches import Batch


_PREFIX = "sudocot_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One attention implementation and its requirements."""

    name: AttentionName
    """Name on the command line."""
    function: Callable[..., tuple[Tensor, None]]
    """Attention function registered with transformers."""
    is_packed: bool
    """Layout of the batches: packed or padded."""
    needs_cuda: bool = False
    """Whether it requires a CUDA device."""
    activations: tuple[str, ...] = ("fp32", "bf16")
    """Supported dtypes of activations."""

    @property
    def registered_name(self) -> str:
        """Name of its registration with transformers."""
        return _PREFIX + self.name


ATTENTIONS: dict[str, Attention] = {
    attention.name: attention
    for attention in (
        Attention(name="padded", function=attend_padded, is_packed=False),
        Attention(name="looped", function=attend_looped, is_packed=True),
        Attention(
            name="varlen",
            function=attend_varlen,
            is_packed=True,
            needs_cuda=True,
            activations=("bf16",),
        ),
        Attention(name="flex", function=attend_flex, is_packed=True, needs_cuda=True),
    )
}
for _attention in ATTENTIONS.values():
    AttentionInterface.register(_attention.registered_name, _attention.function)


def choose_attention(
    name: str | None = None, *, device: torch.device, precision: PrecisionPolicy
) -> Attention:
    """Return the implementation called `name`, or the fastest one for device and precision.

    Raises:
        ValueError: Unknown name, or not supported on the device or in the precision.
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
    """Set the attention implementation of `model`; call it before wrapping or compiling."""
    model.set_attn_implementation(attention.registered_name)


def attention_of(model: nn.Module) -> Attention:
    """Return the implementation that a model uses; DDP and compiled models are unwrapped.

    Raises:
        ValueError: The model uses none of this module's implementations.
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
        ValueError: The batch is packed and the model's attention is not, or vice versa; tokens
            would attend across sequences.
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


@torch.no_grad()
def check_no_leak(model: PreTrainedModel, batch: Batch) -> None:
    """Verify that no token of `batch` attends to another sequence or to its own future.

    The second half of the first sequence (or padded row) is replaced, and the output of every
    attention layer must remain bit-identical everywhere else. The output is compared before its
    projection, so that the check also holds for zero-initialized projections.

    Args:
        model: Model, neither wrapped nor compiled, on the device of the batch.
        batch: Batch in the layout of its attention.

    Raises:
        RuntimeError: Information leaks; the message names the layer.
    """
    # In a padded row, the padding after the sequence attends to it, so the whole row may change.
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
    """Outputs (B, T, d) of all attention layers, by the name of the projection that follows."""
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
