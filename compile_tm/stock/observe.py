"""Activations of a stock model: residual stream, norms and attention scores by layer.

They are read from the model's own modules by forward hooks, for any weights of the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from compile_tm.stock.llama import query_scale
from compile_tm.stock.source import StockSource
from data.model_format.weights import clear_read_errors, no_progress_bars

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerObservation:
    """Activations of one layer on T tokens."""

    attended: Floats
    """(T, D) residual stream after attention."""
    after: Floats
    """(T, D) residual stream after the layer."""
    margins: Floats
    """(H, T) difference of the two largest distinct scores in units of G; inf if all tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Activations of a model on T tokens."""

    embedded: Floats
    """(T, D) residual stream before the first layer."""
    layers: tuple[LayerObservation, ...]
    norm_deltas: tuple[float, ...]
    """Maximum change of a coordinate by each norm, in order of computation; 0 for the identity."""
    predicted: npt.NDArray[np.int64]
    """(T,) greedy next token."""


def load_stock_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> Any:
    """Load the model of a folder with `AutoModelForCausalLM`.

    Raises:
        OSError: a file is missing.
        ValueError: the folder is malformed.
    """
    with no_progress_bars(), clear_read_errors(folder):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    torch.nn.Module.eval(model)
    return model


@torch.inference_mode()
def observe(model: Any, source: StockSource, ids: Sequence[int]) -> Observation:
    """Run a model on a sequence and return its activations.

    Args:
        model: A Llama or GPT-NeoX of the source's shape.
        source: The compiled program and its stock model.
        ids: The sequence.
    """
    modules = _Modules(model, source)
    norms: list[tuple[Tensor, Tensor]] = []
    ends: list[Tensor] = []
    hooks = [
        norm.register_forward_hook(lambda _, args, out: norms.append((args[0][0], out[0])))
        for norm in modules.norms
    ]
    hooks += [
        layer.register_forward_hook(lambda _, __, out: ends.append(_stream(out)))
        for layer in modules.layers
    ]
    try:
        tokens = torch.tensor([list(ids)], device=model.device)
        logits = model(tokens, use_cache=False).logits[0].float()
    finally:
        for hook in hooks:
            hook.remove()
    layers = tuple(
        LayerObservation(
            attended=_numpy(norms[2 * n + 1][0]),
            after=_numpy(ends[n]),
            margins=modules.margins(n, norms[2 * n][1]),
        )
        for n in range(len(modules.layers))
    )
    return Observation(
        embedded=_numpy(norms[0][0]),
        layers=layers,
        norm_deltas=tuple(_delta(source, before, after) for before, after in norms),
        predicted=logits.argmax(dim=-1).cpu().numpy(),
    )


class _Modules:
    """Modules of a Llama or GPT-NeoX under common names."""

    def __init__(self, model: Any, source: StockSource) -> None:
        self._source = source
        self._is_llama = source.architecture == "llama"
        base = model.model if self._is_llama else model.gpt_neox
        self.layers = list(base.layers)
        self._rotary = base.rotary_emb
        last = base.norm if self._is_llama else base.final_layer_norm
        self.norms = [
            norm
            for layer in self.layers
            for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        ]
        self.norms.append(last)

    def margins(self, layer: int, normed: Tensor) -> Floats:
        """Margins (H, T) of a layer's heads, computed from its normalized input (T, D)."""
        q, k = self._queries_keys(layer, normed)
        positions = torch.arange(len(normed), device=normed.device)[None]
        cos, sin = self._rotary(q[None], positions)
        q, k = (part[0].float() for part in apply_rotary_pos_emb(q[None], k[None], cos, sin))
        size = self._source.shape.head_size
        unit = query_scale(size)
        scores = q @ k.transpose(1, 2) / unit
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores.masked_fill_(later, -math.inf)
        best = scores.amax(dim=-1, keepdim=True)
        # Scores of the best positions differ by rounding errors only.
        following = scores.masked_fill(scores > best - 0.25, -math.inf).amax(dim=-1)
        return _numpy(best[..., 0] - following)

    def _queries_keys(self, layer: int, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys (H, T, head_size) before the rotation."""
        shape = self._source.shape
        if self._is_llama:
            attention = self.layers[layer].self_attn
            parts = [attention.q_proj(normed), attention.k_proj(normed)]
            q, k = (part.unflatten(-1, (shape.num_heads, shape.head_size)) for part in parts)
        else:
            joined = self.layers[layer].attention.query_key_value(normed)
            heads = joined.unflatten(-1, (shape.num_heads, 3, shape.head_size))
            q, k = heads[:, :, 0], heads[:, :, 1]
        return q.transpose(0, 1), k.transpose(0, 1)


def _delta(source: StockSource, before: Tensor, after: Tensor) -> float:
    """Distance of a norm from the identity on the coordinates of the program."""
    used = source.program.constant
    difference = (after[:, :used].float() - before[:, :used].float()).abs().max()
    # The norm maps the constant to 1.
    constant = (after[:, used].float() - 1).abs().max()
    return float(torch.maximum(difference, constant))


def _stream(output: Any) -> Tensor:
    stream: Tensor = output[0] if isinstance(output, tuple) else output
    return stream[0] if stream.dim() == 3 else stream


def _numpy(values: Tensor) -> Floats:
    return values.float().cpu().numpy()
