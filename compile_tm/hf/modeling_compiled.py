"""Compiled transformer for `model.generate`: the paper's decoder with a KV cache.

Weights are stored in a sparse format and converted to dense matrices on first use. There is no
normalization. Positions are encoded either as r bits, -1 and 1, which are added to r coordinates of
the embedding, or by rotating pairs of queries and keys by 2 pi i / period; angles are computed in
float32 or wider for every dtype. Attention is averaging hardmax, or softmax by
`scaled_dot_product_attention`. Hardmax scores are small integers, exact in every dtype; with rotary
encodings, the maximum exceeds the second largest score by at least 1/2.

Other number formats are emulated in float32: `activation_format` and `attention_format` in the
configuration round to F(b_m, b_e) at the points specified in the paper.

Shapes: batch size B, T new positions, S positions including cached ones, H heads, V tokens, m
rotated pairs.
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
"""Name of the KV cache in outputs: `cache` since transformers 5.24."""

Turns = tuple[Tensor, Tensor]
"""Cosines and sines (B or 1, T, m) of the rotation angles."""

# MKL selects its kernels at the first cosine of a process, with a race condition between threads
# (PyTorch issue 188792). This first cosine runs on one thread.
torch.zeros(1, device="cpu").cos()


class SparseMatrix(nn.Module):
    """Matrix stored as its nonzero entries."""

    places: Tensor

    def __init__(self, *shape: int, num_entries: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("places", torch.zeros(num_entries, dtype=torch.int32))
        """(n,) indices into the flattened matrix in row-major order, ascending."""
        self.values = nn.Parameter(torch.zeros(num_entries), requires_grad=False)
        """(n,) values of the nonzero entries."""
        self._made: tuple[tuple[object, ...], Tensor] | None = None

    def dense(self) -> Tensor:
        """Return the dense matrix; cached until entries, dtype or device change."""
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
        """Return one of `MATRICES` as a dense matrix."""
        part = self.get_submodule(name)
        assert isinstance(part, SparseMatrix)
        return part.dense()

    def forward(
        self, x: Tensor, allowed: Tensor, cache: Cache | None, turns: Turns | None
    ) -> Tensor:
        """Return the residual stream (B, T, d) after the layer, and update the cache.

        Args:
            x: Residual stream before the layer, (B, T, d).
            allowed: Boolean attention mask, (T, S) or (B, 1, T, S); True takes part in attention.
            cache: Keys and values of earlier positions.
            turns: See `CompiledTransformerForCausalLM.turns`.
        """
        act = self.config.activation_format
        x = rounded(x + self._attend(x, allowed, cache, turns), act)
        hidden = torch.relu(functional.linear(x, self.matrix("W_1"), self.matrix("b")))
        added = functional.linear(rounded(hidden, act), self.matrix("W_2"))
        return rounded(x + rounded(added, act), act)

    def queries_keys_values(self, x: Tensor, turns: Turns | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and keys (B, H, T, d_k), and values (B, H, T, d_v)."""
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
                f"past_key_values: got {type(cache).__name__}, allowed are caches that grow with "
                "the sequence, such as DynamicCache"
            )
        if self.config.attention == "hardmax":
            heads = _hardmax_attention(q, k, v, allowed)
        elif self.config.activation_format or self.config.attention_format:
            heads = _rounded_attention(q, k, v, allowed, self.config)
        else:
            heads = _softmax_attention(q, k, v, allowed)
        return torch.einsum("bhtv,hdv->btd", heads, self.matrix("W_O"))


def _hardmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Return the mean value of the positions of maximum score, (B, H, T, d_v).

    Exact for up to 2^24 such positions.
    """
    with torch.autocast(q.device.type, enabled=False):
        scores = (q.float() @ k.float().transpose(-1, -2)).masked_fill(~allowed, -torch.inf)
        best = (scores == scores.amax(dim=-1, keepdim=True)).float()
        return ((best @ v.float()) / best.sum(dim=-1, keepdim=True)).to(v.dtype)


def _softmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Compute attention by torch's kernels, which require d_k = d_v: vectors are zero-padded."""
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
    """Compute attention with rounded weights and rounded outputs (B, H, T, d_v)."""
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~allowed, -torch.inf)
    weights = rounded(scores.softmax(dim=-1), config.attention_format)
    return rounded(weights @ v, config.activation_format)


def rotated(values: Tensor, turns: Turns) -> Tensor:
    """Rotate the first m pairs of queries or keys (B, H, T, w), each by its own angle."""
    cos, sin = (part[:, None] for part in turns)
    stop = 2 * cos.shape[-1]
    even, odd = values[..., 0:stop:2], values[..., 1:stop:2]
    # Products with float32 are float32; only their sums are cast to the narrower dtype.
    pairs = torch.stack([cos * even + sin * odd, cos * odd - sin * even], dim=-1)
    return torch.cat([pairs.flatten(-2).to(values.dtype), values[..., stop:]], dim=-1)


def rounded(values: Tensor, to: list[int] | None) -> Tensor:
    """Round to the format F(b_m, b_e), half to even; None returns the values unchanged.

    Raises:
        ValueError: the dtype is narrower than float32.
    """
    if to is None:
        return values
    if values.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype: got {values.dtype}, allowed with emulated formats is float32")
    mantissa_bits, exponent_bits = to
    most = (1 << exponent_bits - 1) - 1
    # Representable numbers are integer multiples of a step, which is constant below 2^(1 - most).
    exponents = (torch.frexp(values).exponent - 1).clamp(min=1 - most)
    steps = torch.ldexp(torch.ones_like(values), exponents - mantissa_bits)
    greatest = (2 - 2.0**-mantissa_bits) * 2.0**most
    return (torch.round(values / steps) * steps).clamp(-greatest, greatest)


class CompiledTransformerForCausalLM(PreTrainedModel, GenerationMixin):
    """Compiled transformer with a language modeling head; its generation config is greedy."""

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
        """Do nothing: the weights are set by the compiler."""

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
        """Return the logits of the next token.

        Args:
            input_ids: Token ids, (B, T).
            attention_mask: (B, S), 0 for padding on either side; None without padding.
            position_ids: (B, T) or (1, T); by default the number of preceding non-padding tokens.
            past_key_values: Keys and values of earlier positions.
            cache: Alias of `past_key_values`, used by transformers since 5.24.
            use_cache: Whether to return keys and values (default: True).
            output_hidden_states: Whether to return the residual stream before the first layer and
                after each layer.
            logits_to_keep: Number of last positions to compute logits for; 0: all.
            return_dict: Must not be False; tuples are not supported.

        Returns:
            Logits (B, T, V), the cache, and residual streams (B, T, d) if requested.

        Raises:
            ValueError: the sequence is longer than `max_position_embeddings`, or the mask has
                another shape.
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
        """Return cosines and sines at positions (B, T) or (1, T), exact at multiples of pi / 2.

        The dtype is that of the model, at least float32. None without rotary embeddings.
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
        """Return None: the embedding is sparse and cannot be replaced or tied."""

    def get_output_embeddings(self) -> Any:
        """Return None, see `get_input_embeddings`."""


def _positions(past: int, length: int, mask: Tensor | None, *, device: torch.device) -> Tensor:
    """Return the positions (B, T) or (1, T) of the new tokens, not counting padding."""
    if mask is None:
        return torch.arange(past, past + length, device=device)[None]
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, past:]


def _allowed(past: int, length: int, mask: Tensor | None, *, device: torch.device) -> Tensor:
    """Return the boolean attention mask, (T, S) or (B, 1, T, S)."""
    own = torch.arange(past, past + length, device=device)[:, None]
    others = torch.arange(past + length, device=device)
    if mask is None:
        return others <= own
    # Padding attends to itself, so that no softmax is over an empty set.
    return (others <= own) & mask[:, None, None, :].bool() | (others == own)
