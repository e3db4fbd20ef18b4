"""Memory of an update of each model preset: `python -m scripts.bench.memory`.

Computed on fake tensors (`training.memory`), without a GPU: peak memory of an eager update at the
default micro-batch size, and the largest micro-batch that fits GPUs of 24, 48 and 80 GB with 10%
reserved for PyTorch and fragmentation. The throughput is an estimate for segments of 600 tokens,
from the FLOP/s of an H100 and the MFU in `rates.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from data.model_format.precision import PrecisionName
from scripts.bench.harness import Report
from scripts.experiments.rates import rates_by_name, read_rates
from training.memory import UpdateMemory, measure_update
from training.models.families import MODEL_PRESETS, flops_per_token
from training.schedule import OptimizerConfig

DEFAULT_POSITIONS, FEW_POSITIONS = 32_768, 8_192
GPU_SIZES_GB = (24, 48, 80)
USABLE_SHARE = 0.9
CONTEXT = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compute the memory of updates."""

    models: tuple[str, ...] = (
        "paper-l4",
        "paper-l6",
        "paper-l8",
        "paper-l12",
        "llama-l6",
        "llama-l12",
    )
    """Model presets."""
    precisions: tuple[PrecisionName, ...] = ("bf16", "fp32")
    """Number formats."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Compute and print the table."""
    rows = [row(model, precision) for model in config.models for precision in config.precisions]
    Report(title="memory of an update", rows=rows, facts={"positions": DEFAULT_POSITIONS}).publish(
        config.out
    )
    return 0


def row(model: str, precision: PrecisionName) -> dict[str, Any]:
    """Return the row of a model."""
    few, default = (measure(model, precision, n) for n in (FEW_POSITIONS, DEFAULT_POSITIONS))
    slope = (default.activations - few.activations) / (DEFAULT_POSITIONS - FEW_POSITIONS)
    fixed = default.total - slope * DEFAULT_POSITIONS

    def fitting(size_gb: int) -> int:
        positions = (USABLE_SHARE * size_gb * 1e9 - fixed) / slope
        return int(positions) // 1_024 * 1_024

    rates = rates_by_name(read_rates())
    peak = rates.gpu_bf16_flops if precision == "bf16" else rates.gpu_fp32_flops
    flops = flops_per_token(MODEL_PRESETS[model](), context=CONTEXT)
    return {
        "model": model,
        "precision": precision,
        "GB": default.total / 1e9,
        **{f"positions in {size} GB": fitting(size) for size in GPU_SIZES_GB},
        "tokens/s": peak * rates.mfu / flops,
    }


def measure(model: str, precision: PrecisionName, num_positions: int) -> UpdateMemory:
    """Return the memory of an update with AdamW."""
    return measure_update(
        MODEL_PRESETS[model](),
        num_positions=num_positions,
        precision=precision,
        optimizer=OptimizerConfig(),
    )


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
