"""Everything that decides a training run, in one frozen config, and the presets that fill it in.

The defaults are the paper's recipe (Appendix "Models and Training"); every departure from it is an
option that a preset or the command line turns on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from data.model_format.precision import PrecisionName, get_precision
from data.runtime.ranges import CotLength, Count, Seed, Share, TokenCount, check_ranges
from data.runtime.wandb_runs import check_project
from training.batching.sampler import SamplerConfig
from training.batching.shapes import AttentionName, Layout
from training.batching.usage import BudgetUnit
from training.models.families import MODEL_PRESETS, ModelConfig
from training.schedule import OptimizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    r"""Train a model on a data set; run the same command again to go on after a stop.

    `--preset NAME` and `--model NAME` choose the values that the options below start from; the
    help shows those of the named preset.

    Examples:
        sudocot train run --data data/scot --out runs/scot --preset small --held-out data/test
        accelerate launch --config-file scripts/accelerate/ddp.yaml --no_python \
            sudocot train run --data data/scot --out runs/scot
    """

    data: Path
    """Data set folder, made by `sudocot data build`."""
    out: Path
    """Run folder: config.json, metrics.jsonl, checkpoints/ and, at the end, final/."""
    held_out: Path | None = None
    """Data set folder of other puzzles of the same kind, for the solve rate during training."""
    preset: str = "custom"
    """Recipe that the options start from, one of `sudocot train presets`."""
    model: str = "custom"
    """Model preset that `architecture` starts from; by default the recipe's, for the board of the
    data."""
    architecture: ModelConfig
    """Shape of the model."""
    init_from: Path | None = None
    """Model folder to start from, of the same architecture; None draws the weights."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizer and learning rate."""
    precision: PrecisionName = "bf16"
    """Number formats: bf16 (mixed, fp32 master weights) or fp32 (TF32 off)."""
    seed: Seed = 0
    """Seed of the initial weights."""
    data_seed: Seed = 0
    """Seed of the order of the data."""

    board_state_weight: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Weight of the board-state loss, which asks two layers for the board and its candidates; 0
    turns it off."""
    board_state_layer: Annotated[int, Ge(1), Le(1024)] | None = None
    """First layer that it asks, from 1; None takes the last but two, or the first."""

    budget: TokenCount = 20_000_000_000
    """Amount to train on, in `budget_unit`; the last update may exceed it."""
    budget_unit: BudgetUnit = "tokens"
    """Non-padding tokens, tokens that bear a loss, or distinct puzzles of which any sequence was
    used."""
    max_cot_length: CotLength | None = None
    """N: leave out the puzzles with a longer CoT."""
    output_share: Share = 1.0
    """Share of the training puzzles that keep their output block; the rows of the others end with
    its first token. Short traces have as many tokens in it as before it."""
    tokens_per_update: Annotated[int, Ge(1), Le(10**9)] = 100_000
    """Non-padding tokens of an update, over all processes, on average."""
    max_micro_tokens: Annotated[int, Ge(1), Le(2**30)] = 32_768
    """Positions that go through the model at once, at most; lower it when memory runs out, or to
    give each of many processes a share of an update. It does not change the updates, and may be
    changed when a run is resumed."""
    window_rows: Annotated[int, Ge(1), Le(10**8)] = 8_192
    """Sequences that are planned into batches together; more if an update needs more."""
    attention: AttentionName | None = None
    """Attention implementation; None takes the fastest for device and precision. It decides
    between padded and packed batches."""
    compile: bool | None = None
    """Compile the model; None does so on CUDA."""

    log_every: Count = 50
    """Updates between rows of metrics.jsonl."""
    save_every: Count = 2_000
    """Updates between checkpoints."""
    eval_every: Count = 2_000
    """Updates between evaluations, with `held_out`."""
    eval_puzzles: Count = 512
    """Held-out puzzles to look at, at most."""
    eval_tokens: TokenCount = 2_000_000
    """Tokens of these puzzles together, at most."""
    max_eval_share: Annotated[float, Gt(0), Le(1)] = 0.05
    """Share of the time that evaluations may take; beyond it they are put off. The last always
    runs."""
    wandb: bool = False
    """Copy the metrics to Weights & Biases."""
    wandb_project: str = "sudocot"
    """Project there."""

    def __post_init__(self) -> None:
        get_precision(self.precision)
        check_ranges(self)
        check_project(self.wandb_project)
        if self.budget_unit not in ("tokens", "loss_tokens", "puzzles"):
            raise ValueError(
                f"budget_unit: got {self.budget_unit!r}, allowed are tokens, loss_tokens, puzzles"
            )

    def sampler_config(self, layout: Layout) -> SamplerConfig:
        """The part that decides the batches."""
        return SamplerConfig(
            seed=self.data_seed,
            tokens_per_update=self.tokens_per_update,
            max_micro_tokens=self.max_micro_tokens,
            layout=layout,
            window_rows=self.window_rows,
            max_cot_length=self.max_cot_length,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain form, equal to what comes back from JSON.

        `out` is left out: a run folder can be moved.
        """
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        del plain["out"]
        return plain


FREE_FIELDS = frozenset(
    {
        "data",
        "held_out",
        "preset",
        "model",
        "init_from",
        "compile",
        "max_micro_tokens",
        "log_every",
        "save_every",
        "eval_every",
        "eval_puzzles",
        "eval_tokens",
        "max_eval_share",
        "wandb",
        "wandb_project",
    }
)
"""Fields that may change when a run is resumed: what they name is compared in another way (the
data by its digest, the presets by the values that they set), or the weights do not depend on it."""


def differing_fields(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Fields of two configs, in their plain form, that differ and must not on a resume.

    Returns:
        One line a field: its name with dots, the old value, the new value.
    """
    lines = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if name in FREE_FIELDS and not prefix:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differing_fields(a, b, f"{prefix}{name}.")
        elif a != b:
            lines.append(f"{prefix}{name}: the run has {a!r}, got {b!r}")
    return lines


def paper_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return the paper's recipe: AdamW, bf16, 1e5 tokens an update, 2e10 tokens."""
    return TrainConfig(
        data=data,
        out=out,
        preset="paper",
        model="paper-l6",
        architecture=MODEL_PRESETS["paper-l6"](),
    )


def muon_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return the paper's recipe for a llama, with Muon for the matrices of its layers."""
    return dataclasses.replace(
        paper_preset(data=data, out=out),
        preset="muon",
        model="llama-l6",
        architecture=MODEL_PRESETS["llama-l6"](),
        optimizer=OptimizerConfig(name="muon"),
    )


def small_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return a recipe for small boards on a CPU: minutes to hours."""
    return TrainConfig(
        data=data,
        out=out,
        preset="small",
        model="small-4x4",
        architecture=MODEL_PRESETS["small-4x4"](),
        optimizer=OptimizerConfig(name="muon", peak_lr=2e-3),
        board_state_weight=10.0,
        precision="fp32",
        budget=5_000_000,
        tokens_per_update=2_048,
        max_micro_tokens=8_192,
        log_every=20,
        save_every=500,
        eval_every=500,
        eval_puzzles=256,
        eval_tokens=200_000,
    )


def tiny_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return a recipe that ends in seconds: a smoke test of an installation."""
    return dataclasses.replace(
        small_preset(data=data, out=out),
        preset="tiny",
        model="tiny-4x4",
        architecture=MODEL_PRESETS["tiny-4x4"](),
        budget=20_000,
        tokens_per_update=1_000,
        log_every=5,
        save_every=10,
        eval_every=10,
        eval_tokens=20_000,
    )


PRESETS: dict[str, Callable[..., TrainConfig]] = {
    "paper": paper_preset,
    "muon": muon_preset,
    "small": small_preset,
    "tiny": tiny_preset,
}


def make_config(
    preset: str,
    *,
    data: Path,
    out: Path,
    model: str | None = None,
    board: str | None = None,
    **changes: Any,
) -> TrainConfig:
    """Config of a preset, with another model and other changes.

    Args:
        preset: A name in `PRESETS`.
        data: Data set folder.
        out: Run folder.
        model: A name in `MODEL_PRESETS`; the preset's own if None.
        board: Board of the data, which decides the board of the model where `model` is None.
        changes: Other fields of `TrainConfig`.

    Raises:
        ValueError: If there is no such preset or model, or a value is not allowed.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset: got {preset!r}, allowed are {', '.join(PRESETS)}")
    config = PRESETS[preset](data=data, out=out)
    if model is not None:
        if model not in MODEL_PRESETS:
            raise ValueError(f"model: got {model!r}, allowed are {', '.join(MODEL_PRESETS)}")
        changes = {"model": model, "architecture": MODEL_PRESETS[model](), **changes}
    elif board is not None and board != config.architecture.board:
        changes = {**_model_for_board(config, board), **changes}
    return dataclasses.replace(config, **changes)


def _model_for_board(config: TrainConfig, board: str) -> dict[str, Any]:
    """Model fields of a preset on another board: its own size for that board where it has one."""
    name = config.model.removesuffix(config.architecture.board) + board
    if name in MODEL_PRESETS:
        return {"model": name, "architecture": MODEL_PRESETS[name]()}
    return {"architecture": dataclasses.replace(config.architecture, board=board)}
