"""Configuration of a compiled transformer, read from `config.json`.

Weights are stored sparsely: for each matrix, `places` holds the indices of the non-zero entries of
the row-major flattened matrix, and `values` holds their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eval.network.config import ConfigReader, Shapes

LAYER_MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b", "W_2")
"""Matrices of a layer, in the order of `num_entries`."""
TRANSFORMERS_ONLY_KEYS = ("activation_format", "attention_format", "rotary_periods")
"""Keys of features that only transformers supports: emulated formats, rotary positions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledConfig:
    """Configuration of a compiled transformer: no norms, ReLU, binary position encodings."""

    vocab_size: int
    """Rows of the embedding and the output matrix; may exceed the size of the vocabulary."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Number of layers."""
    num_heads: int
    """Number of heads."""
    key_size: int
    """Width of queries and keys."""
    value_size: int
    """Width of values."""
    feed_forward_size: int
    """Width of the feed-forward layer."""
    attention: Literal["hardmax", "softmax"]
    """Averaging hardmax, or softmax of the scores divided by sqrt(key_size)."""
    position_coordinates: tuple[int, ...]
    """Coordinates of the residual stream that hold the bits of the position as -1 or 1, least
    significant bit first."""
    num_entries: Mapping[str, int]
    """Number of non-zero entries of each matrix."""

    @property
    def cache_size(self) -> int:
        """Maximum number of elements per token in the KV cache; heads may use fewer."""
        return self.num_layers * self.num_heads * (self.key_size + self.value_size)

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all matrices; those of the heads are stacked."""
        H, d, d_ff = self.num_heads, self.hidden_size, self.feed_forward_size
        layer = {
            "W_Q": (H, self.key_size, d),
            "W_K": (H, self.key_size, d),
            "W_V": (H, self.value_size, d),
            "W_O": (H, d, self.value_size),
            "W_1": (d_ff, d),
            "b": (d_ff,),
            "W_2": (d, d_ff),
        }
        outer = (self.vocab_size, d)
        shapes: dict[str, tuple[int, ...]] = {"embedding": outer, "unembedding": outer}
        for index in range(self.num_layers):
            shapes |= {f"layers.{index}.{name}": layer[name] for name in LAYER_MATRICES}
        return shapes

    @property
    def tensor_shapes(self) -> Shapes:
        """Names and shapes of all tensors of a model folder with this configuration."""
        return {
            f"{name}.{part}": (count,)
            for name, count in self.num_entries.items()
            for part in ("places", "values")
        }


def read_compiled_config(config: Mapping[str, Any], *, source: str) -> CompiledConfig | None:
    """Read the configuration of a compiled transformer.

    Args:
        config: Content of `config.json`.
        source: Name of the file, for messages.

    Returns:
        The configuration; None if only transformers supports it.

    Raises:
        ValueError: A value is missing or malformed.
    """
    if any(config.get(name) is not None for name in TRANSFORMERS_ONLY_KEYS):
        return None
    read = ConfigReader(config, source)
    hidden_size, num_layers = read.size("hidden_size"), read.size("num_hidden_layers")
    coordinates = config.get("position_coordinates")
    if not (
        isinstance(coordinates, list)
        and coordinates
        and all(type(c) is int and 0 <= c < hidden_size for c in coordinates)
        and len(set(coordinates)) == len(coordinates)
    ):
        allowed = f"a list of different coordinates below {hidden_size}"
        raise read.error("position_coordinates", coordinates, allowed)
    read.choice("max_position_embeddings", (1 << len(coordinates),), None)
    return CompiledConfig(
        vocab_size=read.size("vocab_size"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=read.size("num_attention_heads"),
        key_size=read.size("key_size"),
        value_size=read.size("value_size"),
        feed_forward_size=read.size("intermediate_size"),
        attention=read.choice("attention", ("hardmax", "softmax"), None),
        position_coordinates=tuple(coordinates),
        num_entries=dict(_read_counts(read, num_layers)),
    )


def _read_counts(read: ConfigReader, num_layers: int) -> Iterator[tuple[str, int]]:
    for name in ("embedding", "unembedding"):
        yield name, read.size(f"num_{name}_entries")
    rows = read.config.get("num_entries")
    if not (
        isinstance(rows, list)
        and len(rows) == num_layers
        and all(isinstance(row, list) and len(row) == len(LAYER_MATRICES) for row in rows)
        and all(type(count) is int and count >= 0 for row in rows for count in row)
    ):
        allowed = f"{num_layers} rows of {len(LAYER_MATRICES)} numbers of entries"
        raise read.error("num_entries", rows, allowed)
    for index, row in enumerate(rows):
        for name, count in zip(LAYER_MATRICES, row, strict=True):
            yield f"layers.{index}.{name}", count
