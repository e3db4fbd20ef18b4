"""Configuration of a training run, and its presets.

The defaults are the paper's recipe (Appendix "Models and Training"). Every departure from it is an
option that a preset or the command line turns on.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
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
from training.schedule import OptimizerConfig, is_constant


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    r"""Train a model on a data set. The same command resumes an interrupted run.

    `--preset NAME` and `--model NAME` set the defaults of the options below; the help shows those
    of the named preset.

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
    """Data set folder of held-out puzzles of the same kind, for evaluations during training."""
    preset: str = "custom"
    """Preset of the options, one of `sudocot train presets`."""
    model: str = "custom"
    """Model preset of `architecture`; by default that of `preset`, for the board of the data."""
    architecture: ModelConfig
    """Architecture of the model."""
    init_from: Path | None = None
    """Model folder with the initial weights, of the same architecture; possibly narrower (fewer
    residual dimensions, heads and neurons), and possibly of another board: embeddings of tokens of
    both boards are copied. None for random weights."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Optimizer and learning rate."""
    precision: PrecisionName = "bf16"
    """Number formats: bf16 (mixed, fp32 master weights) or fp32 (TF32 off)."""
    seed: Seed = 0
    """Seed of the initial weights."""
    data_seed: Seed = 0
    """Seed of the data order."""

    board_state_weight: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Weight of the auxiliary probe loss, which predicts the board and its candidates from two
    layers; 0 disables it."""
    board_state_layer: Annotated[int, Ge(1), Le(1024)] | None = None
    """First probed layer, counted from 1; None for max(1, num_layers - 2)."""

    budget: TokenCount = 20_000_000_000
    """Amount to train on, in `budget_unit`; the last update may exceed it. In the constant phase of
    `wsd`, it may change on resume, as may the shares of the schedule and the final learning
    rate."""
    budget_unit: BudgetUnit = "tokens"
    """Unit of the budget: non-padding tokens, loss tokens, or distinct puzzles seen."""
    max_cot_length: CotLength | None = None
    """Cut-off N: exclude puzzles with a longer CoT."""
    output_share: Share = 1.0
    """Share of the training puzzles that keep their output block. Rows of the others end with its
    first token, which halves short traces."""
    tokens_per_update: Annotated[int, Ge(1), Le(10**9)] = 100_000
    """Mean non-padding tokens per update, over all processes."""
    max_tokens_per_micro_batch: Annotated[int, Ge(1), Le(2**30)] = 32_768
    """Maximum positions per micro-batch. Lower it when memory runs out, or so that every process
    has a micro-batch per update. It does not affect the updates, so it may change on resume."""
    window_rows: Annotated[int, Ge(1), Le(10**8)] = 8_192
    """Sequences that are batched together; at least those of one update."""
    attention: AttentionName | None = None
    """Attention implementation; None for the fastest one on the device in this precision. It
    determines whether batches are padded or packed."""
    compile: bool | None = None
    """Compile the model; None for on CUDA only."""

    log_every: Count = 50
    """Updates between rows of metrics.jsonl."""
    save_every: Count = 2_000
    """Updates between checkpoints."""
    eval_every: Count = 2_000
    """Updates between evaluations, with `held_out`."""
    eval_puzzles: Count = 512
    """Maximum number of held-out puzzles per evaluation."""
    eval_tokens: TokenCount = 2_000_000
    """Maximum number of their tokens in total."""
    max_eval_share: Annotated[float, Gt(0), Le(1)] = 0.05
    """Maximum share of the run time spent on evaluations; further ones are skipped, except the
    last."""
    wandb: bool = False
    """Log the metrics to Weights & Biases."""
    wandb_project: str = "sudocot"
    """W&B project."""

    def __post_init__(self) -> None:
        get_precision(self.precision)
        check_ranges(self)
        check_project(self.wandb_project)
        if self.budget_unit not in ("tokens", "loss_tokens", "puzzles"):
            raise ValueError(
                f"budget_unit: got {self.budget_unit!r}, allowed are tokens, loss_tokens, puzzles"
            )

    def sampler_config(self, layout: Layout) -> SamplerConfig:
        """Return the config of the sampler for a batch layout."""
        return SamplerConfig(
            seed=self.data_seed,
            tokens_per_update=self.tokens_per_update,
            max_tokens_per_micro_batch=self.max_tokens_per_micro_batch,
            layout=layout,
            window_rows=self.window_rows,
            max_cot_length=self.max_cot_length,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the config as JSON values, without `out`: a run folder may be moved."""
        plain = _as_json(dataclasses.asdict(self))
        del plain["out"]
        return plain


MUTABLE_ON_RESUME = frozenset(
    {
        "data",
        "held_out",
        "preset",
        "model",
        "init_from",
        "compile",
        "max_tokens_per_micro_batch",
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
"""Fields that may change when a run is resumed: the weights do not depend on them, or they are
compared in another way (data by its digest, presets by the values that they set)."""


_SCHEDULE_SHARES = ("warmup_share", "decay_share", "average_share")
_SCHEDULE_FIELDS = frozenset(
    {"budget", "optimizer.final_lr", *(f"optimizer.{name}" for name in _SCHEDULE_SHARES)}
)


def differing_fields(
    old: dict[str, Any], new: dict[str, Any], *, ignores_schedule: bool = False
) -> list[str]:
    """List the differences of two configs (as JSON values) that prevent a resume.

    A field that an older version did not write counts as its default.

    Args:
        old: Config of the run.
        new: Requested config.
        ignores_schedule: Ignore budget and shares of the schedule.

    Returns:
        One line per field: its dotted name, the old value, the new value.
    """
    flat_old, flat_new = flat_fields(old), flat_fields(new)
    mutable = MUTABLE_ON_RESUME | (_SCHEDULE_FIELDS if ignores_schedule else frozenset())
    lines = []
    for name in sorted(flat_old.keys() | flat_new.keys()):
        a, b = flat_old.get(name), flat_new.get(name)
        if mutable.isdisjoint({name, name.partition(".")[0]}) and a != b:
            lines.append(f"{name}: the run has {a!r}, got {b!r}")
    return lines


def are_constant(configs: Iterable[dict[str, Any]], *, used: int) -> bool:
    """Return whether configs (as JSON values) are in the constant phase of `wsd`.

    Args:
        configs: Configs with the same unit of the budget.
        used: Amount of the budget used so far.
    """
    return all(_is_constant(flat_fields(config), used) for config in configs)


def _is_constant(flat: dict[str, Any], used: int) -> bool:
    shares = {name: flat[f"optimizer.{name}"] for name in _SCHEDULE_SHARES}
    schedule = OptimizerConfig(schedule=flat["optimizer.schedule"], **shares)
    return is_constant(schedule, progress=used / flat["budget"])


def flat_fields(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a config (as JSON values) by dotted name, with defaults if missing."""
    flat = _defaults(TrainConfig) | config
    for name, group in (("architecture", ModelConfig), ("optimizer", OptimizerConfig)):
        values = _defaults(group) | flat.pop(name, {})
        flat |= {f"{name}.{key}": value for key, value in values.items()}
    return flat


def _defaults(config_class: type[Any]) -> dict[str, Any]:
    fields = dataclasses.fields(config_class)
    return _as_json({f.name: f.default for f in fields if f.default is not dataclasses.MISSING})


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def paper_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return the paper's recipe: AdamW, bf16, 1e5 tokens per update, 2e10 tokens."""
    return TrainConfig(
        data=data,
        out=out,
        preset="paper",
        model="paper-l6",
        architecture=MODEL_PRESETS["paper-l6"](),
    )


def muon_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return the paper's recipe for a Llama model, with Muon for the matrices of its layers."""
    return dataclasses.replace(
        paper_preset(data=data, out=out),
        preset="muon",
        model="llama-l6",
        architecture=MODEL_PRESETS["llama-l6"](),
        optimizer=OptimizerConfig(name="muon"),
    )


def small_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return a recipe for small boards on a CPU that takes minutes to hours."""
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
        max_tokens_per_micro_batch=8_192,
        log_every=20,
        save_every=500,
        eval_every=500,
        eval_puzzles=256,
        eval_tokens=200_000,
    )


def tiny_preset(*, data: Path, out: Path) -> TrainConfig:
    """Return a recipe that takes seconds: a smoke test of an installation."""
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


def tokens_per_share(tokens_per_update: int, num_processes: int) -> int:
    """Return the tokens of a micro-batch with which each process has one per update.

    Rows do not divide evenly; a margin of a sixteenth avoids a further micro-batch.
    """
    return round(1.0625 * tokens_per_update / num_processes)


def make_config(
    preset: str,
    *,
    data: Path,
    out: Path,
    model: str | None = None,
    board: str | None = None,
    **changes: Any,
) -> TrainConfig:
    """Return the config of a preset, with overrides.

    Args:
        preset: A name in `PRESETS`.
        data: Data set folder.
        out: Run folder.
        model: A name in `MODEL_PRESETS`; None for the model of the preset.
        board: Board of the data, which sets the board of the model if `model` is None.
        changes: Other fields of `TrainConfig`.

    Raises:
        ValueError: Unknown preset or model, or a value out of range.
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
    """Model fields of a preset for another board, from the model preset of that board if any."""
    name = config.model.removesuffix(config.architecture.board) + board
    if name in MODEL_PRESETS:
        return {"model": name, "architecture": MODEL_PRESETS[name]()}
    return {"architecture": dataclasses.replace(config.architecture, board=board)}
