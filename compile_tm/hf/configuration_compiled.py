"""Configuration of a compiled transformer.

This file and `modeling_compiled.py` only require torch and transformers. They are copied into every
model folder, so that `AutoModelForCausalLM.from_pretrained(.., trust_remote_code=True)` loads it
without sudocot.
"""

from typing import Any

from transformers import PreTrainedConfig

MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_1", "b", "W_2")
"""Matrices of a layer, in the order of `num_entries`."""
ATTENTIONS = ("hardmax", "softmax")


class CompiledTransformerConfig(PreTrainedConfig):
    """Dimensions of a compiled transformer and numbers of nonzero entries of its matrices."""

    model_type = "compiled_transformer"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]  # noqa: RUF012

    def __init__(
        self,
        *,
        vocab_size: int = 2,
        hidden_size: int = 1,
        num_hidden_layers: int = 1,
        num_attention_heads: int = 1,
        key_size: int = 1,
        value_size: int = 1,
        intermediate_size: int = 1,
        position_coordinates: list[int] | None = None,
        rotary_periods: list[int] | None = None,
        rotary_heads: list[list[int]] | None = None,
        attention: str = "hardmax",
        activation_format: list[int] | None = None,
        attention_format: list[int] | None = None,
        num_entries: list[list[int]] | None = None,
        num_embedding_entries: int = 0,
        num_unembedding_entries: int = 0,
        source: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the configuration.

        Args:
            vocab_size: Number of tokens V.
            hidden_size: Width d of the residual stream.
            num_hidden_layers: Number of layers L.
            num_attention_heads: Number of heads H per layer.
            key_size: Size d_k of queries and keys.
            value_size: Size d_v of values.
            intermediate_size: Number of hidden neurons d_ff of the MLP.
            position_coordinates: The r coordinates of the binary positional embedding; empty with
                rotary embeddings.
            rotary_periods: Periods of the rotated pairs in positions; the model supports a quarter
                of the longest period. None: binary positional embedding.
            rotary_heads: Heads of each layer with rotary embeddings.
            attention: `hardmax` (averaging), or `softmax` of the scores divided by sqrt(d_k).
            activation_format: [b_m, b_e] of the format to which activations are rounded (softmax
                only, float32 or wider); None: no rounding.
            attention_format: [b_m, b_e] for attention weights.
            num_entries: Numbers of nonzero entries of the `MATRICES` of each layer.
            num_embedding_entries: Number of nonzero entries of the embedding.
            num_unembedding_entries: Number of nonzero entries of the unembedding.
            source: Machine, mode, bits and conversion that the model was compiled from.
            kwargs: Fields of `PreTrainedConfig`.

        Raises:
            ValueError: `attention` is unknown; `num_entries` does not match the layers; a format
                exceeds float32 or is combined with hardmax; or rotary embeddings do not match the
                heads or are combined with a positional embedding.
        """
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.key_size = key_size
        self.value_size = value_size
        self.intermediate_size = intermediate_size
        if position_coordinates is None:
            position_coordinates = [] if rotary_periods else [0]
        self.position_coordinates = position_coordinates
        self.rotary_periods = rotary_periods
        self.rotary_heads = rotary_heads
        self.attention = attention
        self.activation_format, self.attention_format = activation_format, attention_format
        self.num_entries = num_entries or [[0] * len(MATRICES)] * num_hidden_layers
        self.num_embedding_entries = num_embedding_entries
        self.num_unembedding_entries = num_unembedding_entries
        self.source = source or {}
        self._check_rotations()
        self.max_position_embeddings = (
            max(rotary_periods) // 4 if rotary_periods else 1 << len(position_coordinates)
        )
        if attention not in ATTENTIONS:
            raise ValueError(f"attention: got {attention!r}, allowed are {', '.join(ATTENTIONS)}")
        if [len(row) for row in self.num_entries] != [len(MATRICES)] * num_hidden_layers:
            raise ValueError(
                f"num_entries: allowed are {num_hidden_layers} rows of {len(MATRICES)} numbers"
            )
        for name in ("activation_format", "attention_format"):
            self._check_format(name)
        kwargs.pop("max_position_embeddings", None)
        kwargs["tie_word_embeddings"] = False
        super().__init__(**kwargs)

    def _check_rotations(self) -> None:
        periods, heads = self.rotary_periods, self.rotary_heads
        if periods is None:
            if heads is not None:
                raise ValueError("rotary_heads: must be None without rotary_periods")
            return
        if self.position_coordinates:
            raise ValueError("position_coordinates: must be empty with rotary_periods")
        if not 1 <= len(periods) <= self.key_size // 2 or not min(periods) > 0 or max(periods) < 4:
            raise ValueError(
                f"rotary_periods: got {periods}, allowed are 1 to {self.key_size // 2} positive "
                "numbers, the longest 4 or more"
            )
        numbers = set(range(self.num_attention_heads))
        if (
            heads is None
            or len(heads) != self.num_hidden_layers
            or not all(set(row) <= numbers for row in heads)
        ):
            raise ValueError(
                f"rotary_heads: allowed are {self.num_hidden_layers} rows of numbers below "
                f"{self.num_attention_heads}"
            )

    def _check_format(self, name: str) -> None:
        bits = getattr(self, name)
        if bits is None:
            return
        if self.attention != "softmax":
            raise ValueError(f"{name}: got {bits}, allowed for {self.attention} is None")
        if len(bits) != 2 or not (1 <= bits[0] <= 23 and 2 <= bits[1] <= 8):
            raise ValueError(
                f"{name}: got {bits}, allowed are [b_m, b_e] with b_m 1 to 23 and b_e 2 to 8"
            )
