"""A compiled transformer for `model.generate`: the paper's decoder with a KV cache.

Weights are stored by their entries, as nearly all are zero, and made dense at the first use. There
are no norms. Position i adds its r bits, as -1 and 1, to r coordinates of the embedding; or it
turns pairs of queries and keys, by 2 pi i / period, in float32 or wider whatever the dtype.
Attention is averaging hardmax, or softmax by the attention kernel of torch. Scores of hardmax are
small integers that every dtype holds; where pairs turn, the best is 1/2 above the next.

Formats that no hardware has are emulated in float32: with `activation_format` or `attention_format`
in the configuration, numbers are rounded to F(b_m, b_e) where the paper's setting does.

Shapes: B sequences, T new positions, S positions so far, H heads, V tokens, m pairs that turn.
"""

import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_compiled import MATRICES, CompiledTransformerConfig

_CACHE_FIELD = next(
    field.name
    for field in fields(CausalLMOutputWithPast)
    if field.name in ("cache", "past_key_values")
)
"""Name of the KV cache in outputs: `cache` from transformers 5.24 on."""

Turns = tuple[Tensor, Tensor]
"""Cosines and sines (B or 1, T, m) of the angles that pairs turn by."""

# MKL picks its kernels at a process's first cosine, and that can go wrong on several threads
# (PyTorch issue 188792): this one is on one.
torch.zeros(1, device="cpu").cos()


class SparseMatrix(nn.Module):
    """A matrix by its entries that are not zero."""

    places: Tensor

    def __init__(self, *shape: int, num_entries: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("places", torch.zeros(num_entries, dtype=torch.int32))
        """(n,) places in the flattened matrix, row after row, ascending."""
        self.values = nn.Parameter(torch.zeros(num_entries), requires_grad=False)
        """(n,)."""
        self._made: tuple[tuple[object, ...], Tensor] | None = None

    def dense(self) -> Tensor:
        """The matrix; made anew where its entries, their dtype or their device have changed."""
        state = (
            self.values.device,
            self.values.dtype,
            *((part.data_ptr(), part._version) for part in (self.values, self.places)),
        )
        if self._made is None or self._made[0] != state:
            matrix = self.values.new_zeros(self.shape)
            matrix.view(-1)[self.places.long()] = self.values.detach()
            self._made = state, matrix
        return self._made[1]


class CompiledLayer(nn.Module):
    """Attention heads and an MLP."""

    def __init__(self, config: CompiledTransformerConfig, index: int) -> None:
        super().__init__()
        self.config, self.index = config, index
        H, d, d_ff = config.num_attention_heads, config.hidden_size, config.intermediate_size
        shapes = {
            "W_Q": (H, config.key_size, d),
            "W_K": (H, config.key_size, d),
            "W_V": (H, config.value_size, d),
            "W_O": (H, d, config.value_size),
            "W_1": (d_ff, d),
            "b": (d_ff,),
            "W_2": (d, d_ff),
        }
        for name, count in zip(MATRICES, config.num_entries[index], strict=True):
            self.add_module(name, SparseMatrix(*shapes[name], num_entries=count))

    def matrix(self, name: str) -> Tensor:
        """One of `MATRICES`, dense."""
        part = self.get_submodule(name)
        assert isinstance(part, SparseMatrix)
        return part.dense()

    def forward(
        self, x: Tensor, allowed: Tensor, cache: Cache | None, turns: Turns | None
    ) -> Tensor:
        """The residual stream (B, T, d) after the layer; fills the cache.

        Args:
            x: The stream before.
            allowed: (T, S) or (B, 1, T, S), which positions may be attended to.
            cache: Keys and values so far.
            turns: See `CompiledTransformerForCausalLM.turns`.
        """
        act = self.config.activation_format
        x = rounded(x + self._attend(x, allowed, cache, turns), act)
        hidden = torch.relu(functional.linear(x, self.matrix("W_1"), self.matrix("b")))
        added = functional.linear(rounded(hidden, act), self.matrix("W_2"))
        return rounded(x + rounded(added, act), act)

    def queries_keys_values(self, x: Tensor, turns: Turns | None) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, T, d_k) twice, as rotated, and (B, H, T, d_v)."""
        act = self.config.activation_format
        q, k, v = (
            rounded(functional.linear(x, matrix.flatten(0, 1)), act)
            .unflatten(-1, matrix.shape[:2])
            .transpose(1, 2)
            for matrix in map(self.matrix, ("W_Q", "W_K", "W_V"))
        )
        heads = self.config.rotary_heads[self.index] if self.config.rotary_heads else []
        if turns is not None and heads:
            for part in (q, k):
                part[:, heads] = rounded(rotated(part[:, heads], turns), act)
        return q, k, v

    def _attend(
        self, x: Tensor, allowed: Tensor, cache: Cache | None, turns: Turns | None
    ) -> Tensor:
        q, k, v = self.queries_keys_values(x, turns)
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        if k.shape[-2] != allowed.shape[-1]:
            raise ValueError(
                f"past_key_values: got {type(cache).__name__}, allowed are caches that grow by the "
                "new positions, as DynamicCache"
            )
        if self.config.attention == "hardmax":
            heads = _hardmax_attention(q, k, v, allowed)
        elif self.config.activation_format or self.config.attention_format:
            heads = _rounded_attention(q, k, v, allowed, self.config)
        else:
            heads = _softmax_attention(q, k, v, allowed)
        return torch.einsum("bhtv,hdv->btd", heads, self.matrix("W_O"))


def _hardmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Mean of the values of the best positions (B, H, T, d_v), exact for up to 2^24 of them."""
    with torch.autocast(q.device.type, enabled=False):
        scores = (q.float() @ k.float().transpose(-1, -2)).masked_fill(~allowed, -torch.inf)
        best = (scores == scores.amax(dim=-1, keepdim=True)).float()
        return ((best @ v.float()) / best.sum(dim=-1, keepdim=True)).to(v.dtype)


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attention by torch's kernels, which want one width; zeros beside a vector change nothing."""
    d_k, d_v = q.shape[-1], v.shape[-1]
    width = max(d_k, d_v)
    q, k, v = (functional.pad(part, (0, width - part.shape[-1])) for part in (q, k, v))
    heads = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, scale=1 / math.sqrt(d_k)
    )
    return heads[..., :d_v]


def _rounded_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, config: CompiledTransformerConfig
) -> Tensor:
    """Attention whose weights, and then the heads' outputs (B, H, T, d_v), are rounded."""
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~allowed, -torch.inf)
    weights = rounded(scores.softmax(dim=-1), config.attention_format)
    return rounded(weights @ v, config.activation_format)


def rotated(values: Tensor, turns: Turns) -> Tensor:
    """Queries or keys (B, H, T, w) with their first m pairs turned, each by its own angle."""
    cos, sin = (part[:, None] for part in turns)
    stop = 2 * cos.shape[-1]
    even, odd = values[..., 0:stop:2], values[..., 1:stop:2]
    # Products with float32 are float32, and only what they sum up to is of a narrower type.
    pairs = torch.stack([cos * even + sin * odd, cos * odd - sin * even], dim=-1)
    return torch.cat([pairs.flatten(-2).to(values.dtype), values[..., stop:]], dim=-1)


def rounded(values: Tensor, to: list[int] | None) -> Tensor:
    """The nearest numbers of the format F(b_m, b_e), of ties the even one; unchanged for None.

    Raises:
        ValueError: the values are of a type narrower than float32.
    """
    if to is None:
        return values
    if values.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype: got {values.dtype}, allowed with emulated formats is float32")
    mantissa_bits, exponent_bits = to
    most = (1 << exponent_bits - 1) - 1
    # Members are whole multiples of a step, which is the same for all below 2^(1 - most).
    exponents = (torch.frexp(values).exponent - 1).clamp(min=1 - most)
    steps = torch.ldexp(torch.ones_like(values), exponents - mantissa_bits)
    greatest = (2 - 2.0**-mantissa_bits) * 2.0**most
    return (torch.round(values / steps) * steps).clamp(-greatest, greatest)


class CompiledTransformerForCausalLM(PreTrainedModel, GenerationMixin):
    """A compiled transformer; `generate` decodes greedily with its own generation config."""

    config_class = CompiledTransformerConfig
    config: CompiledTransformerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    _supports_sdpa = True
    _no_split_modules = ["CompiledLayer"]  # noqa: RUF012

    def __init__(self, config: CompiledTransformerConfig) -> None:
        super().__init__(config)
        shape = (config.vocab_size, config.hidden_size)
        self.embedding = SparseMatrix(*shape, num_entries=config.num_embedding_entries)
        self.layers = nn.ModuleList(
            CompiledLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.unembedding = SparseMatrix(*shape, num_entries=config.num_unembedding_entries)
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """There is nothing to draw: weights come from a compiler."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        *,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast:
        """Scores of the next token.

        Args:
            input_ids: (B, T).
            attention_mask: (B, S), 0 at padding, on either side; None where there is none.
            position_ids: (B, T) or (1, T); by default tokens that are no padding are counted.
            past_key_values: Keys and values of earlier positions.
            cache: The same, by the name that transformers uses from 5.24 on.
            use_cache: Return keys and values; on by default.
            output_hidden_states: Return the residual streams before the first layer and after each.
            logits_to_keep: Score this many last positions only; 0 for all.
            return_dict: Anything but False; tuples are not offered.

        Returns:
            Logits (B, T, V), the cache, and the streams (B, T, d) if asked for.

        Raises:
            ValueError: there are more positions than the model can tell apart, or the mask is not
                of that shape.
        """
        if return_dict is False:
            raise ValueError("return_dict: got False, allowed are True and None")
        cache = past_key_values if cache is None else cache
        if use_cache is not False and cache is None:
            cache = DynamicCache()
        past = 0 if cache is None else int(cache.get_seq_length())
        batch, length = input_ids.shape
        if attention_mask is not None and attention_mask.shape != (batch, past + length):
            raise ValueError(
                f"attention_mask: got shape {tuple(attention_mask.shape)}, allowed is "
                f"{(batch, past + length)}, earlier positions included"
            )
        allowed = _allowed(past, length, attention_mask, device=input_ids.device)
        if position_ids is None:
            position_ids = _positions(past, length, attention_mask, device=input_ids.device)
        x = self._embed(input_ids, position_ids)
        turns = self.turns(position_ids)
        streams = [x]
        for layer in self.layers:
            x = layer(x, allowed, cache, turns)
            streams.append(x)
        logits = functional.linear(x[:, -logits_to_keep:], self.unembedding.dense())
        return CausalLMOutputWithPast(
            logits=logits,  # type: ignore[arg-type]
            hidden_states=tuple(streams) if output_hidden_states else None,  # type: ignore[arg-type]
            **{_CACHE_FIELD: cache},  # type: ignore[arg-type]
        )

    def turns(self, positions: Tensor) -> Turns | None:
        """What pairs turn by at positions (B, T) or (1, T): exact at quarter turns.

        It is of the model's type, but float32 at least; None without rotary encodings.
        """
        if self.config.rotary_periods is None:
            return None
        periods = torch.tensor(self.config.rotary_periods, device=positions.device)
        quarters = 4 * (positions[..., None] % periods).double() / periods
        nearest = quarters.round()
        rest = (quarters - nearest) * (math.pi / 2)
        cos, sin = torch.cos(rest), torch.sin(rest)
        # Each quarter turn swaps the two and negates one.
        which = nearest.long() % 4
        cos, sin = (
            torch.stack(choices).gather(0, which[None])[0]
            for choices in ((cos, -sin, -cos, sin), (sin, cos, -sin, -cos))
        )
        dtype = torch.promote_types(self.dtype, torch.float32)
        return cos.to(dtype), sin.to(dtype)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        last = int(positions.max())
        if last >= self.config.max_position_embeddings:
            raise ValueError(
                f"positions: got {last + 1}, allowed are {self.config.max_position_embeddings}; "
                "compile with more bits"
            )
        coordinates = self.config.position_coordinates
        shifts = torch.arange(len(coordinates), device=tokens.device)
        bits = (positions[..., None] >> shifts & 1) * 2 - 1
        x = self.embedding.dense()[tokens]
        x[..., coordinates] += bits.to(x.dtype)
        return x

    def get_input_embeddings(self) -> Any:
        """None: the embedding is made of entries, and cannot be exchanged or tied."""

    def get_output_embeddings(self) -> Any:
        """None, as `get_input_embeddings`."""


def _positions(past: int, length: int, mask: Tensor | None, *, device: torch.device) -> Tensor:
    """(B, T) or (1, T) numbers of the new tokens among those that are no padding."""
    if mask is None:
        return torch.arange(past, past + length, device=device)[None]
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, past:]


def _allowed(past: int, length: int, mask: Tensor | None, *, device: torch.device) -> Tensor:
    """(T, S) or (B, 1, T, S) whether a new position may attend to a position."""
    own = torch.arange(past, past + length, device=device)[:, None]
    others = torch.arange(past + length, device=device)
    if mask is None:
        return others <= own
    # Padding sees itself, so that no softmax is over nothing.
    return (others <= own) & mask[:, None, None, :].bool() | (others == own)
