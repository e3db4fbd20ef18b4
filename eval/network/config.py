"""Shape of a network from `config.json`, for the families of `eval.network.network`.

`llama`, `qwen3` (a llama that normalises the queries and keys of each head) and `gpt_neox`, with
rotary positions and full causal attention. What would change the result and is not implemented
(another activation, scaled rotary positions, sliding windows, quantised weights, ...) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Family = Literal["llama", "qwen3", "gpt_neox"]
FAMILIES: tuple[str, ...] = get_args(Family)
OUTPUT_MATRIX = "lm_head.weight"
"""Name of the output matrix; a folder with tied embeddings does not hold it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """Shape of a network."""

    family: Family
    """Family; it names the tensors and sets the order of a layer."""
    vocab_size: int
    """Rows of the embedding and the output matrix; there may be more than the board has ids."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Layers."""
    num_heads: int
    """Query heads of a layer."""
    num_kv_heads: int
    """Key and value heads of a layer; each serves `num_heads / num_kv_heads` query heads."""
    head_size: int
    """Width of a head."""
    feed_forward_size: int
    """Width of the feed-forward layer."""
    rope_base: float
    """Base of the rotary frequencies."""
    rope_factors: tuple[float, ...] | None
    """What the frequency of each pair is divided by (`longrope`, `linear`); None for 1."""
    rotary_dims: int
    """Leading dimensions of a head that are rotated."""
    norm_eps: float
    """Added to the variance in norms."""
    max_positions: int
    """Longest sequence in tokens."""
    has_attention_bias: bool
    """Whether the projections of attention have biases."""
    has_mlp_bias: bool
    """Whether the feed-forward projections have biases."""
    has_tied_embeddings: bool
    """Whether the embedding is the output matrix too."""
    activation: Literal["silu", "gelu", "relu"]
    """Activation of the feed-forward layer."""
    is_parallel: bool
    """Whether attention and feed-forward read the same residual stream (gpt_neox)."""

    @property
    def cache_size(self) -> int:
        """Numbers that a token adds to the KV cache, all layers together."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size


class ConfigReader:
    """Typed access to a config; whatever is wrong is a ValueError that names file and key."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self.config, self.source = config, source

    def refuse(self, key: str, got: object, allowed: str) -> ValueError:
        """What to raise about a key."""
        return ValueError(f"{self.source}: {key}: got {got!r}, allowed is {allowed}")

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.config.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refuse(key, value, "an integer of at least 1")
        return value

    def real(self, name: str, value: object) -> float:
        """A value that must be a number above 0."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.refuse(name, value, "a number above 0")
        return float(value)

    def require(self, key: str, allowed: tuple[Any, ...], default: Any) -> Any:
        """One of the allowed values."""
        value = self.config.get(key, default)
        if value not in allowed:
            raise self.refuse(key, value, " or ".join(repr(a) for a in allowed))
        return value


def read_network_config(config: Mapping[str, Any], *, source: str) -> NetworkConfig:
    """Read the shape of a network.

    Args:
        config: content of `config.json`, of transformers 4 or 5.
        source: name of the file, for messages.

    Raises:
        ValueError: a value is missing, malformed, or asks for what is not implemented.
    """
    read = ConfigReader(config, source)
    family = read.require("model_type", FAMILIES, None)
    is_neox = family == "gpt_neox"
    activation = read.require("hidden_act", ("gelu", "relu") if is_neox else ("silu",), None)
    read.require("quantization_config", (None,), None)
    if config.get("use_sliding_window") or set(config.get("layer_types") or ()) - {
        "full_attention"
    }:
        raise read.refuse("layer_types", config.get("layer_types"), "full attention everywhere")
    hidden_size, num_heads = read.size("hidden_size"), read.size("num_attention_heads")
    num_kv_heads = read.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise read.refuse("num_key_value_heads", num_kv_heads, f"a divisor of {num_heads}")
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
        has_attention_bias=read.require("attention_bias", (True, False), is_neox),
        has_mlp_bias=is_neox or read.require("mlp_bias", (True, False), False),
        has_tied_embeddings=read.require("tie_word_embeddings", (True, False), False),
        activation=activation,
        is_parallel=is_neox and read.require("use_parallel_residual", (True, False), True),
    )


def _read_rope(read: ConfigReader, *, is_neox: bool) -> tuple[float, float]:
    """Return base and rotated share of a head, as transformers itself would use them."""
    config, rope = read.config, _rope_parameters(read)
    old_base, old_share = ("rotary_emb_base", "rotary_pct") if is_neox else ("rope_theta", "-")
    base = read.real("rope_theta", rope.get("rope_theta", config.get(old_base)))
    # Left out, the share is a quarter in gpt_neox; a llama rotates whole heads.
    share = rope.get("partial_rotary_factor", config.get(old_share, 0.25 if is_neox else 1.0))
    share = read.real("partial_rotary_factor", share)
    if share > 1 or (share != 1 and not is_neox):
        raise read.refuse("partial_rotary_factor", share, "at most 1, and 1 in a llama")
    return base, share


def _rope_parameters(read: ConfigReader) -> dict[str, Any]:
    return dict(read.config.get("rope_parameters") or read.config.get("rope_scaling") or {})


def _read_rope_factors(
    read: ConfigReader, num_pairs: int, max_positions: int
) -> tuple[float, ...] | None:
    """Divisors of the frequencies; of `longrope` those of sequences within the original length."""
    rope = _rope_parameters(read)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return (read.real("factor", rope.get("factor")),) * num_pairs
    if kind != "longrope":
        allowed = "'default', 'linear' or 'longrope': other scalings are not computed"
        raise read.refuse("rope_parameters", kind, allowed)
    original = rope.get("original_max_position_embeddings", max_positions)
    if not isinstance(original, int) or original < max_positions:
        raise read.refuse("original_max_position_embeddings", original, f"at least {max_positions}")
    if rope.get("attention_factor") not in (None, 1, 1.0) or rope.get("factor", 1.0) > 1:
        raise read.refuse("rope_parameters", rope.get("factor"), "a factor of at most 1")
    factors = rope.get("short_factor")
    if not isinstance(factors, list) or len(factors) != num_pairs:
        raise read.refuse("short_factor", factors, f"a list of {num_pairs} numbers")
    return tuple(read.real("short_factor", factor) for factor in factors)


Shapes = dict[str, tuple[int, ...]]


def tensor_shapes(config: NetworkConfig) -> Shapes:
    """Names and shapes of all tensors that a folder with this config must hold."""
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
