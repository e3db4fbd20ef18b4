"""The shape of a compiled transformer as `config.json` gives it.

Weights lie in the folder by their entries that are not zero: each matrix is a tensor of places, in
the matrix flattened row after row, and one of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eval.network.config import ConfigReader, Shapes

LAYER_MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b", "W_2")
"""Matrices of a layer, in the order in which `num_entries` counts them."""
FOREIGN_KEYS = ("activation_format", "attention_format", "rotary_periods")
"""Keys that ask for what transformers alone computes: emulated formats, rotary positions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledConfig:
    """Shape of a compiled transformer: no norms, ReLU, positions in binary."""

    vocab_size: int
    """Rows of the embedding and the output matrix; there may be more than the board has ids."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Layers."""
    num_heads: int
    """Heads of a layer."""
    key_size: int
    """Width of a head's queries and keys."""
    value_size: int
    """Width of a head's values."""
    feed_forward_size: int
    """Width of the feed-forward layer."""
    attention: Literal["hardmax", "softmax"]
    """Mean over the greatest scores, or softmax of the scores over the root of `key_size`."""
    position_coordinates: tuple[int, ...]
    """Coordinates of the embedding that get the position's bits, as -1 and 1, the lowest first."""
    num_entries: Mapping[str, int]
    """Entries that are not zero, by matrix."""

    @property
    def cache_size(self) -> int:
        """Numbers that a token adds to the KV cache at most: heads need not use their widths."""
        return self.num_layers * self.num_heads * (self.key_size + self.value_size)

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all matrices; those of heads are stacked."""
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
        """Names and shapes of all tensors that a folder with this config must hold."""
        return {
            f"{name}.{part}": (count,)
            for name, count in self.num_entries.items()
            for part in ("places", "values")
        }


def read_compiled_config(config: Mapping[str, Any], *, source: str) -> CompiledConfig | None:
    """Read the shape of a compiled transformer.

    Args:
        config: content of `config.json`.
        source: name of the file, for messages.

    Returns:
        The shape; None where the config asks for what transformers alone computes.

    Raises:
        ValueError: a value is missing or malformed.
    """
    if any(config.get(name) is not None for name in FOREIGN_KEYS):
        return None
    read = ConfigReader(config, source)
    hidden_size, num_layers = read.size("hidden_size"), read.size("num_hidden_layers")
    coordinates = config.get("position_coordinates")
    if not (
        isinstance(coordinates, list)
        and coordinates
        and len(set(coordinates)) == len(coordinates)
        and all(isinstance(c, int) and 0 <= c < hidden_size for c in coordinates)
    ):
        allowed = f"a list of different coordinates below {hidden_size}"
        raise read.refuse("position_coordinates", coordinates, allowed)
    read.require("max_position_embeddings", (1 << len(coordinates),), None)
    return CompiledConfig(
        vocab_size=read.size("vocab_size"),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=read.size("num_attention_heads"),
        key_size=read.size("key_size"),
        value_size=read.size("value_size"),
        feed_forward_size=read.size("intermediate_size"),
        attention=read.require("attention", ("hardmax", "softmax"), None),
        position_coordinates=tuple(coordinates),
        num_entries=dict(_read_counts(read, num_layers)),
    )


def _read_counts(read: ConfigReader, num_layers: int) -> Iterator[tuple[str, int]]:
    for name in ("embedding", "unembedding"):
        yield name, read.size(f"num_{name}_entries")
    rows = read.config.get("num_entries")
    if not (
        isinstance(rows, list)
        and [len(row) for row in rows] == [len(LAYER_MATRICES)] * num_layers
        and all(isinstance(count, int) and count >= 0 for row in rows for count in row)
    ):
        allowed = f"{num_layers} rows of {len(LAYER_MATRICES)} numbers of entries"
        raise read.refuse("num_entries", rows, allowed)
    for index, row in enumerate(rows):
        for name, count in zip(LAYER_MATRICES, row, strict=True):
            yield f"layers.{index}.{name}", count
