"""Model configs, the registry of model families, and presets, including those of the paper's table.

A family is an entry of `FAMILIES` with its transformers config. `llama` (default) is
`LlamaForCausalLM`, or `Qwen3ForCausalLM` if `qk_norm` is set: the same architecture with normalized
queries and keys, loaded by plain transformers. `gpt_neox` is `GPTNeoXForCausalLM` as in the paper:
d_ff = 4d, biases, parallel residual, all dimensions of a head rotated, no dropout (Appendix
"Models and Training").

torch and transformers are imported only when a model is built (`training.models.build`), so that
options are checked and help is shown without delay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from data.runtime.ranges import check_ranges
from solver.boards import get_board
from solver.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Init = Literal["normal", "scaled", "zero"]

_LLAMA_WIDTH_STEP = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Architecture of a model; the defaults are the paper's L = 6 row as a Llama model."""

    board: str = "9x9"
    """Board of the vocabulary."""
    family: str = "llama"
    """Model family: `llama`, or `gpt_neox` as in the paper."""
    hidden_size: Annotated[int, Ge(8), Le(16384)] = 512
    """Width d of the residual stream."""
    num_layers: Annotated[int, Ge(1), Le(1024)] = 6
    """Number of layers L."""
    num_heads: Annotated[int, Ge(1), Le(1024)] = 8
    """Number of attention heads H per layer."""
    intermediate_size: Annotated[int, Ge(1), Le(65536)] | None = None
    """Feed-forward width; None for 4d in gpt_neox, and in llama, whose gated layer has three
    matrices, for 8d/3 rounded up to a multiple of 64: the same number of parameters and FLOPs."""
    rope_theta: Annotated[float, Gt(1), Le(1e12)] = 10_000.0
    """Base of the rotary frequencies."""
    max_positions: Annotated[int, Ge(1), Le(2**24)] = 32_768
    """Maximum sequence length in tokens; it does not affect the number of parameters."""
    qk_norm: bool = False
    """Normalize queries and keys of each head (llama only)."""
    tie_embeddings: bool = False
    """Share the matrix of the embedding with the output layer."""
    init: Init = "normal"
    """Initialization: `normal` is N(0, 0.02) as in transformers; `scaled` divides the matrices
    that write to the residual stream by sqrt(2L); `zero` sets them to zero."""
    embedding_std: Annotated[float, Gt(0), Le(100)] = 0.02
    """Standard deviation of the initial embeddings; larger values make updates relatively
    smaller."""

    def __post_init__(self) -> None:
        get_board(self.board)
        check_ranges(self)
        if self.family not in FAMILIES:
            raise ValueError(f"family: got {self.family!r}, allowed are {', '.join(FAMILIES)}")
        if self.init not in ("normal", "scaled", "zero"):
            raise ValueError(f"init: got {self.init!r}, allowed are normal, scaled, zero")
        if self.hidden_size % (2 * self.num_heads) or self.head_size < 4:
            raise ValueError(
                f"hidden_size: got {self.hidden_size} with {self.num_heads} heads, "
                "allowed are heads of an even size of at least 4"
            )
        if self.qk_norm and self.family != "llama":
            raise ValueError(f"qk_norm: got True for {self.family}, allowed with llama only")

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the board."""
        return Vocabulary(get_board(self.board))

    @property
    def head_size(self) -> int:
        """Width of one attention head; all dimensions are rotated."""
        return self.hidden_size // self.num_heads

    @property
    def feed_forward_size(self) -> int:
        """Feed-forward width, with the default of the family."""
        if self.intermediate_size is not None:
            return self.intermediate_size
        if FAMILIES[self.family].num_ff_matrices == 2:
            return 4 * self.hidden_size
        return -(-8 * self.hidden_size // (3 * _LLAMA_WIDTH_STEP)) * _LLAMA_WIDTH_STEP


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A model family of transformers."""

    make_config: Callable[[ModelConfig, Mapping[str, Any]], PreTrainedConfig]
    """Creates the transformers config from a `ModelConfig` and the arguments of all families."""
    num_ff_matrices: int
    """Matrices of a feed-forward layer: 2, or 3 if it is gated."""
    residual_projections: tuple[str, ...]
    """Names of the matrices that write to the residual stream."""


def _make_llama(config: ModelConfig, shared: Mapping[str, Any]) -> PreTrainedConfig:
    from transformers import LlamaConfig, Qwen3Config

    heads: dict[str, Any] = {"num_key_value_heads": config.num_heads, "head_dim": config.head_size}
    llama_class = Qwen3Config if config.qk_norm else LlamaConfig
    return llama_class(**shared, **heads)


def _make_gpt_neox(config: ModelConfig, shared: Mapping[str, Any]) -> PreTrainedConfig:
    from transformers import GPTNeoXConfig

    del config
    rope = {**shared["rope_parameters"], "partial_rotary_factor": 1.0}
    return GPTNeoXConfig(**{**shared, "rope_parameters": rope})


FAMILIES = {
    "llama": Family(
        make_config=_make_llama, num_ff_matrices=3, residual_projections=("o_proj", "down_proj")
    ),
    "gpt_neox": Family(
        make_config=_make_gpt_neox,
        num_ff_matrices=2,
        residual_projections=("dense", "dense_4h_to_h"),
    ),
}
"""Families by name; docs/models.md describes how to add one."""


def flops_per_token(config: ModelConfig, *, context: float) -> float:
    """FLOPs of one training step per token, forward and backward, for the MFU.

    Only matrix products count, with two FLOPs per multiply-add: 6 per weight of a matrix, and
    6 * d * `context` per layer for attention, since a token attends to half of its sequence on
    average. The embedding lookup does not count.

    Args:
        config: Model.
        context: Token-weighted mean sequence length in tokens, `sum(l*l) / sum(l)`.
    """
    d = config.hidden_size
    num_ff_matrices = FAMILIES[config.family].num_ff_matrices
    layer_weights = 4 * d * d + num_ff_matrices * d * config.feed_forward_size
    weights = config.num_layers * layer_weights + d * config.vocabulary.size
    return 6.0 * weights + 6.0 * config.num_layers * d * context


def paper_model(num_layers: int, *, hidden_size: int = 512, num_heads: int = 8) -> ModelConfig:
    """Return a row of the paper's model table (GPT-NeoX)."""
    return ModelConfig(
        family="gpt_neox", num_layers=num_layers, hidden_size=hidden_size, num_heads=num_heads
    )


def llama_model(num_layers: int, *, hidden_size: int = 512, num_heads: int = 8) -> ModelConfig:
    """Return a row of the paper's model table as a Llama model of the same size."""
    return ModelConfig(num_layers=num_layers, hidden_size=hidden_size, num_heads=num_heads)


def small_model(board: str, *, hidden_size: int = 128, num_layers: int = 4) -> ModelConfig:
    """Return a Llama model for training on a CPU, with 0.9 million parameters by default.

    Queries and keys are normalized, which halves the tokens needed on small boards.
    """
    return ModelConfig(
        board=board,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=hidden_size // 32,
        qk_norm=True,
        max_positions=8_192,
    )


MODEL_PRESETS: dict[str, Callable[[], ModelConfig]] = {
    **{f"paper-l{layers}": partial(paper_model, layers) for layers in (4, 5, 6, 7, 8)},
    "paper-l12": partial(paper_model, 12, hidden_size=768, num_heads=12),
    **{f"llama-l{layers}": partial(llama_model, layers) for layers in (4, 5, 6, 7, 8)},
    "llama-l12": partial(llama_model, 12, hidden_size=768, num_heads=12),
    "tiny-4x4": partial(small_model, "4x4", hidden_size=64, num_layers=2),
    "small-4x4": partial(small_model, "4x4"),
    "small-6x6": partial(small_model, "6x6", hidden_size=192),
    "small-9x9": partial(small_model, "9x9"),
}
