"""Configuration of a network, read from `config.json`.

Supports `llama`, `qwen3` (a Llama with QK norm) and `gpt_neox`, with rotary position embeddings and
full causal attention. Options that change the result and are not implemented (other activations,
most RoPE scalings, sliding windows, quantization, ...) raise a `ValueError`.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from data.model_format.names import OUTPUT_MATRIX

Family = Literal["llama", "qwen3", "gpt_neox"]
FAMILIES: tuple[str, ...] = get_args(Family)


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """Shape of a network."""

    family: Family
    """Model family, which determines the names of the tensors and the layer architecture."""
    vocab_size: int
    """Rows of the embedding and the output matrix; may exceed the size of the vocabulary."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Number of layers."""
    num_heads: int
    """Number of query heads."""
    num_kv_heads: int
    """Number of key/value heads; each is shared by `num_heads / num_kv_heads` query heads."""
    head_size: int
    """Width of a head."""
    feed_forward_size: int
    """Width of the feed-forward layer."""
    rope_base: float
    """Base of the rotary frequencies (theta)."""
    rope_factors: tuple[float, ...] | None
    """Divisor of each rotary frequency (`longrope`, `linear`); None for 1."""
    rotary_dims: int
    """Number of leading dimensions of a head that are rotated."""
    norm_eps: float
    """Epsilon of the norms."""
    max_positions: int
    """Context length in tokens."""
    has_attention_bias: bool
    """Whether the attention projections have biases."""
    has_mlp_bias: bool
    """Whether the feed-forward projections have biases."""
    has_tied_embeddings: bool
    """Whether the embedding is also the output matrix."""
    activation: Literal["silu", "gelu", "relu"]
    """Activation of the feed-forward layer."""
    is_parallel: bool
    """Whether attention and feed-forward layer run in parallel (gpt_neox)."""

    @property
    def cache_size(self) -> int:
        """Number of elements per token in the KV cache of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size


class ConfigReader:
    """Typed access to a config; errors are `ValueError`s that name file and key."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self.config, self.source = config, source

    def error(self, key: str, got: object, allowed: str) -> ValueError:
        """Return the error for an invalid value."""
        return ValueError(f"{self.source}: {key}: got {reprlib.repr(got)}, allowed is {allowed}")

    def size(self, key: str, default: int | None = None) -> int:
        """Return an integer from 1 to 2^31 - 1."""
        value = self.config.get(key)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value < 1 << 31:
            raise self.error(key, value, "an integer from 1 to 2147483647")
        return value

    def real(self, name: str, value: object) -> float:
        """Return a finite number above 0."""
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 < value <= sys.float_info.max
        ):
            raise self.error(name, value, "a number above 0")
        return float(value)

    def choice(self, key: str, allowed: tuple[Any, ...], default: Any) -> Any:
        """Return one of the allowed values."""
        value = self.config.get(key, default)
        if value not in allowed:
            raise self.error(key, value, " or ".join(repr(a) for a in allowed))
        return value


def read_network_config(config: Mapping[str, Any], *, source: str) -> NetworkConfig:
    """Read the configuration of a network.

    Args:
        config: Content of `config.json`, written by transformers 4 or 5.
        source: Name of the file, for messages.

    Raises:
        ValueError: A value is missing, malformed or not supported.
    """
    read = ConfigReader(config, source)
    family = read.choice("model_type", FAMILIES, None)
    is_neox = family == "gpt_neox"
    activation = read.choice("hidden_act", ("gelu", "relu") if is_neox else ("silu",), None)
    read.choice("quantization_config", (None,), None)
    kinds = config.get("layer_types") or []
    is_full = isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds)
    if config.get("use_sliding_window") or not is_full:
        raise read.error("layer_types", kinds, "full attention everywhere")
    hidden_size, num_heads = read.size("hidden_size"), read.size("num_attention_heads")
    num_kv_heads = read.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise read.error("num_key_value_heads", num_kv_heads, f"a divisor of {num_heads}")
    head_size = read.size("head_dim", hidden_size // num_heads)
    rope_base, rotary_share = _read_rope(read, is_neox=is_neox)
    rotary_dims, max_positions = int(head_size * rotary_share), read.size("max_position_embeddings")
    return NetworkConfig(
        family=family,
        vocab_size=read.size("vocab_size"),
        hidden_size=hidden_size,
        num_layers=read.size("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        feed_forward_size=read.size("intermediate_size"),
        rope_base=rope_base,
        rope_factors=_read_rope_factors(read, rotary_dims // 2, max_positions),
        rotary_dims=rotary_dims,
        norm_eps=read.real("eps", config.get("layer_norm_eps" if is_neox else "rms_norm_eps")),
        max_positions=max_positions,
        has_attention_bias=read.choice("attention_bias", (True, False), is_neox),
        has_mlp_bias=is_neox or read.choice("mlp_bias", (True, False), False),
        has_tied_embeddings=read.choice("tie_word_embeddings", (True, False), False),
        activation=activation,
        is_parallel=is_neox and read.choice("use_parallel_residual", (True, False), True),
    )


def _read_rope(read: ConfigReader, *, is_neox: bool) -> tuple[float, float]:
    """Return base and partial rotary factor, with the defaults of transformers."""
    config, rope = read.config, _rope_parameters(read)
    old_base, old_share = ("rotary_emb_base", "rotary_pct") if is_neox else ("rope_theta", "-")
    base = read.real("rope_theta", rope.get("rope_theta", config.get(old_base)))
    # The default factor is 0.25 for gpt_neox; a Llama rotates whole heads.
    share = rope.get("partial_rotary_factor", config.get(old_share, 0.25 if is_neox else 1.0))
    share = read.real("partial_rotary_factor", share)
    if share > 1 or (share != 1 and not is_neox):
        raise read.error("partial_rotary_factor", share, "at most 1, and 1 in a llama")
    return base, share


def _rope_parameters(read: ConfigReader) -> dict[str, Any]:
    for name in ("rope_parameters", "rope_scaling"):  # transformers 5 and 4
        value = read.config.get(name) or {}
        if not isinstance(value, dict):
            raise read.error(name, value, "an object")
        if value:
            return value
    return {}


def _read_rope_factors(
    read: ConfigReader, num_pairs: int, max_positions: int
) -> tuple[float, ...] | None:
    """Return the divisors of the frequencies; for `longrope`, those of `short_factor`."""
    rope = _rope_parameters(read)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return (read.real("factor", rope.get("factor")),) * num_pairs
    if kind != "longrope":
        allowed = "'default', 'linear' or 'longrope': other scalings are not supported"
        raise read.error("rope_parameters", kind, allowed)
    original = rope.get("original_max_position_embeddings", max_positions)
    if type(original) is not int or original < max_positions:
        raise read.error("original_max_position_embeddings", original, f"at least {max_positions}")
    factor = read.real("factor", rope.get("factor", 1.0))
    if rope.get("attention_factor") not in (None, 1, 1.0) or factor > 1:
        raise read.error("rope_parameters", rope.get("factor"), "a factor of at most 1")
    factors = rope.get("short_factor")
    if not isinstance(factors, list) or len(factors) != num_pairs:
        raise read.error("short_factor", factors, f"a list of {num_pairs} numbers")
    return tuple(read.real("short_factor", factor) for factor in factors)


Shapes = dict[str, tuple[int, ...]]


def tensor_shapes(config: NetworkConfig) -> Shapes:
    """Return names and shapes of all tensors of a model folder with this configuration."""
    name_layer = _neox_layer if config.family == "gpt_neox" else _llama_layer
    hidden, vocab = (config.hidden_size,), (config.vocab_size, config.hidden_size)
    if config.family == "gpt_neox":
        prefix = "gpt_neox.layers"
        shapes: Shapes = {
            "gpt_neox.embed_in.weight": vocab,
            "gpt_neox.final_layer_norm.weight": hidden,
            "gpt_neox.final_layer_norm.bias": hidden,
        }
    else:
        prefix = "model.layers"
        shapes = {"model.embed_tokens.weight": vocab, "model.norm.weight": hidden}
    if not config.has_tied_embeddings:
        shapes[OUTPUT_MATRIX] = vocab
    layer = name_layer(config)
    for index in range(config.num_layers):
        shapes |= {f"{prefix}.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _linear(name: str, num_out: int, num_in: int, *, has_bias: bool) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (num_out, num_in)}
    return shapes | {f"{name}.bias": (num_out,)} if has_bias else shapes


def _llama_layer(config: NetworkConfig) -> Shapes:
    d, ff, bias = config.hidden_size, config.feed_forward_size, config.has_attention_bias
    q, kv = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
    shapes: Shapes = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
    for name, size in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
        shapes |= _linear(f"self_attn.{name}", size, d, has_bias=bias)
    shapes |= _linear("self_attn.o_proj", d, q, has_bias=bias)
    if config.family == "qwen3":
        shapes["self_attn.q_norm.weight"] = (config.head_size,)
        shapes["self_attn.k_norm.weight"] = (config.head_size,)
    for name in ("gate_proj", "up_proj"):
        shapes |= _linear(f"mlp.{name}", ff, d, has_bias=config.has_mlp_bias)
    return shapes | _linear("mlp.down_proj", d, ff, has_bias=config.has_mlp_bias)


def _neox_layer(config: NetworkConfig) -> Shapes:
    d, ff, bias = config.hidden_size, config.feed_forward_size, config.has_attention_bias
    shapes: Shapes = {}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        shapes |= {f"{norm}.weight": (d,), f"{norm}.bias": (d,)}
    shapes |= _linear("attention.query_key_value", 3 * d, d, has_bias=bias)
    shapes |= _linear("attention.dense", d, d, has_bias=bias)
    shapes |= _linear("mlp.dense_h_to_4h", ff, d, has_bias=True)
    return shapes | _linear("mlp.dense_4h_to_h", d, ff, has_bias=True)
