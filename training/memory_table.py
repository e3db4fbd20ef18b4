"""Memory of an update by model preset, as `training.memory.estimate_update` computes it.

`sudocot paper plan` reads this table, since an estimate imports torch and transformers and runs a
forward pass on fake tensors. Tests compare both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from data.model_format.precision import PrecisionName
from training.models.families import MODEL_PRESETS, ModelConfig

STATE_BYTES = 16
"""Bytes of a parameter: weight, gradient and the two moments of AdamW, each in fp32."""
_BF16_BYTES = 2
_FEWEST_POSITIONS = 1_025
"""Shorter sequences materialize the attention matrix in bf16, so memory is quadratic in length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Estimated memory of an update with AdamW on each of its devices, in bytes."""

    state_bytes: int
    """Weights, gradients and optimizer state; under bf16 the rounded weights too."""
    activation_bytes: int
    """Tensors saved by the forward pass for the backward pass, and the widest gradients."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Parameters, and activation bytes of each position and of each micro-batch."""

    num_parameters: int
    bf16: tuple[int, int]
    fp32: tuple[int, int]


_TABLE = {
    "paper-l4": _Row(12_710_912, bf16=(98_392, 25_266_180), fp32=(169_048, 4)),
    "paper-l5": _Row(15_863_296, bf16=(117_896, 31_557_636), fp32=(205_960, 4)),
    "paper-l6": _Row(19_015_680, bf16=(137_400, 37_849_092), fp32=(242_872, 4)),
    "paper-l7": _Row(22_168_064, bf16=(156_904, 44_140_548), fp32=(279_784, 4)),
    "paper-l8": _Row(25_320_448, bf16=(176_408, 50_432_004), fp32=(316_696, 4)),
    "paper-l12": _Row(85_206_528, bf16=(381_080, 170_019_844), fp32=(695_960, 4)),
    "llama-l4": _Row(12_950_016, bf16=(132_148, 25_790_468), fp32=(190_516, 4)),
    "llama-l5": _Row(16_162_304, bf16=(160_860, 32_212_996), fp32=(233_564, 4)),
    "llama-l6": _Row(19_374_592, bf16=(189_572, 38_635_524), fp32=(276_612, 4)),
    "llama-l7": _Row(22_586_880, bf16=(218_284, 45_058_052), fp32=(319_660, 4)),
    "llama-l8": _Row(25_799_168, bf16=(246_996, 51_480_580), fp32=(362_708, 4)),
    "llama-l12": _Row(85_104_384, bf16=(535_604, 170_019_844), fp32=(789_044, 4)),
    "tiny-4x4": _Row(110_528, bf16=(11_580, 216_580), fp32=(16_060, 4)),
    "small-4x4": _Row(860_544, bf16=(40_796, 1_711_108), fp32=(58_460, 4)),
    "small-6x6": _Row(1_790_656, bf16=(58_516, 3_558_148), fp32=(82_964, 4)),
    "small-9x9": _Row(878_464, bf16=(41_076, 1_729_028), fp32=(58_740, 4)),
}


def state_bytes(num_parameters: int, precision: PrecisionName) -> int:
    """Return the bytes of weights, gradients and optimizer state."""
    return num_parameters * (STATE_BYTES + (_BF16_BYTES if precision == "bf16" else 0))


def num_parameters(config: ModelConfig) -> int:
    """Return the number of trainable parameters; tied matrices count once."""
    return planned_update(config, precision="fp32", num_positions=2_048).state_bytes // STATE_BYTES


def planned_update(
    config: ModelConfig, *, precision: PrecisionName, num_positions: int
) -> MemoryEstimate:
    """Look up the memory of an update with one micro-batch; compute it for other models.

    Args:
        config: Model.
        precision: Number formats.
        num_positions: Positions of the micro-batch.
    """
    row = _find_row(config)
    if row is None or num_positions < _FEWEST_POSITIONS:
        from training.memory import estimate_update

        return estimate_update(config, precision=precision, num_positions=num_positions)
    per_position, per_batch = row.bf16 if precision == "bf16" else row.fp32
    return MemoryEstimate(
        state_bytes=state_bytes(row.num_parameters, precision),
        activation_bytes=per_position * num_positions + per_batch,
    )


def _find_row(config: ModelConfig) -> _Row | None:
    for name, row in _TABLE.items():
        preset = MODEL_PRESETS[name]()
        if preset == replace(config, init=preset.init, embedding_std=preset.embedding_std):
            return row
    return None
