"""Trainings of the experiments: a `TrainConfig`, and the samples that the model is evaluated on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data.model_format.facts import Mode
from data.model_format.precision import PrecisionName
from training.config import TrainConfig, make_config

SampleName = Literal["random", "targets", "hardest", "all"]
PAPER_TOKENS = 20_000_000_000
STUDY_TOKENS = 500_000
"""Loss tokens of a training of the studies on 4x4."""
STUDY_TOKENS_6X6 = 4_000_000
"""Loss tokens of one on 6x6; a tenth of them trains no model that solves a puzzle."""
LONGEST = 2**14
"""Largest N of the paper; its data set contains the puzzles of every smaller N."""
_FOLDERS: dict[str, Any] = {"data": Path("DATA"), "out": Path("RUN")}
"""Placeholders; `scripts.experiments.recipe` sets the folders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One training run and its evaluations."""

    arm: str
    """Name without the seed, shared by the repeats of a training."""
    label: str
    """Description in tables."""
    mode: Mode
    """Kind of training sequences: CoTs or SCoT segments."""
    samples: tuple[SampleName, ...]
    """Samples of test puzzles that the model is evaluated on."""
    config: TrainConfig
    """Training configuration at full scale; the folders are placeholders."""
    published: str | None = None
    """Name of the paper's result in `eval/report/published.yaml`."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return f"{self.arm}-seed{self.config.seed}"

    @property
    def max_cot_length(self) -> int:
        """N, the cut-off on the CoT length of training puzzles."""
        return self.config.max_cot_length or LONGEST

    def with_config(self, **changes: Any) -> Training:
        """Return the training with other fields of its configuration."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, **changes))

    def with_seed(self, seed: int) -> Training:
        """Return a repeat with another seed, which has no published result."""
        repeat = self.with_config(seed=seed, data_seed=seed)
        return dataclasses.replace(repeat, published=None)


def scot_small(num_layers: int, *, seed: int = 0) -> Training:
    """Return an SCoT training of the paper, width 512."""
    run = f", run {seed + 1}" if num_layers == 6 else ""
    return Training(
        arm=f"scot-l{num_layers}",
        label=f"SCoT L={num_layers}",
        mode="scot",
        samples=("random",),
        config=_paper_config(f"paper-l{num_layers}", seed=seed, data_seed=seed),
        published=f"SCoT d=512 L={num_layers}, N=2^14{run}",
    )


def scot_large(max_cot_length: int) -> Training:
    """Return an SCoT training of the paper, width 768."""
    power = max_cot_length.bit_length() - 1
    return Training(
        arm=f"scot-l12-n{max_cot_length}",
        label=f"SCoT d=768 L=12, N=2^{power}",
        mode="scot",
        samples=("random", "hardest"),
        config=_paper_config("paper-l12", max_cot_length=max_cot_length),
        published=f"SCoT d=768 L=12, N=2^{power}",
    )


def cot(
    num_layers: int,
    max_cot_length: int = LONGEST,
    *,
    precision: PrecisionName = "bf16",
    num_tokens: int = PAPER_TOKENS,
) -> Training:
    """Return a CoT training of the paper, width 512."""
    billions = num_tokens // 10**9
    is_long = num_tokens != PAPER_TOKENS
    arm = f"cot-l{num_layers}-n{max_cot_length}"
    label = f"CoT L={num_layers}, N=2^{max_cot_length.bit_length() - 1}"
    return Training(
        arm=arm + ("-fp32" if precision == "fp32" else "") + (f"-{billions}b" if is_long else ""),
        label=label
        + (", fp32" if precision == "fp32" else "")
        + (f", {billions} billion tokens" if is_long else ""),
        mode="cot",
        samples=("targets",),
        config=_paper_config(
            f"paper-l{num_layers}",
            max_cot_length=max_cot_length,
            precision=precision,
            budget=num_tokens,
        ),
    )


def _paper_config(model: str, **changes: Any) -> TrainConfig:
    changes = {"max_cot_length": LONGEST, "budget": PAPER_TOKENS, **changes}
    return make_config("paper", model=model, **_FOLDERS, **changes)


def small(
    arm: str,
    label: str,
    *,
    mode: Mode = "cot",
    model: str = "small-4x4",
    architecture: Mapping[str, Any] | None = None,
    budget: int = STUDY_TOKENS,
    **changes: Any,
) -> Training:
    """Return a training of the studies: preset `small`, with the same number of loss tokens.

    Args:
        arm: Name without the seed.
        label: Description in tables.
        mode: Kind of training sequences.
        model: Model preset.
        architecture: Fields of `ModelConfig` that differ from the model preset.
        budget: Loss tokens.
        changes: Fields of `TrainConfig` that differ from the preset.
    """
    config = make_config("small", model=model, **_FOLDERS)
    return Training(
        arm=arm,
        label=label,
        mode=mode,
        samples=("all",),
        config=dataclasses.replace(
            config,
            architecture=dataclasses.replace(config.architecture, **(architecture or {})),
            max_cot_length=LONGEST,
            budget=budget,
            budget_unit="loss_tokens",
            **changes,
        ),
    )


def small_6x6(
    arm: str,
    label: str,
    *,
    mode: Mode = "cot",
    architecture: Mapping[str, Any] | None = None,
    precision: PrecisionName = "bf16",
    **changes: Any,
) -> Training:
    """Return a training of the studies on 6x6, with the arguments of `small`.

    The models are narrow and compiled, and most output blocks, which the trace determines, are
    left out, so that a core trains one in minutes.
    """
    return small(
        arm,
        label,
        mode=mode,
        model="small-6x6",
        architecture={"hidden_size": 128, "num_heads": 2, **(architecture or {})},
        budget=STUDY_TOKENS_6X6,
        precision=precision,
        compile=True,
        output_share=0.2,
        **changes,
    )
