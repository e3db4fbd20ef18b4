"""One training of an experiment, and the kinds of trainings that the experiments are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from data.model_format.precision import PrecisionName

Mode = Literal["cot", "scot"]
SampleName = Literal["random", "targets", "hardest", "all"]
PAPER_TOKENS = 20_000_000_000
STUDY_TOKENS = 500_000
LONGEST = 2**14
"""Greatest N of the paper; its data sets hold those of every smaller one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One model."""

    arm: str
    """Name of what is trained; trainings that differ in the seed alone share it."""
    label: str
    """The same in words."""
    mode: Mode
    """What it writes."""
    model: str
    """Model preset."""
    num_layers: int
    """Layers L."""
    samples: tuple[SampleName, ...]
    """Puzzles it is evaluated on."""
    num_tokens: int = PAPER_TOKENS
    """Tokens it is trained on."""
    budget_unit: Literal["tokens", "loss_tokens"] = "tokens"
    """What `num_tokens` counts."""
    max_cot_length: int = LONGEST
    """N, the cut-off on the CoT length of its puzzles."""
    precision: PrecisionName = "bf16"
    """Number formats, in training and evaluation."""
    seed: int = 0
    """Seed of weights and order."""
    options: tuple[str, ...] = ()
    """Further options of `sudocot train run`."""
    published: str | None = None
    """Name of the paper's result in `eval/report/published.yaml`."""

    @property
    def name(self) -> str:
        """Name of its run."""
        return f"{self.arm}-seed{self.seed}"


def scot_small(num_layers: int, *, seed: int = 0) -> Training:
    """Return an SCoT model of width 512."""
    run = f", run {seed + 1}" if num_layers == 6 else ""
    return Training(
        arm=f"scot-l{num_layers}",
        label=f"SCoT L={num_layers}",
        mode="scot",
        model=f"paper-l{num_layers}",
        num_layers=num_layers,
        samples=("random",),
        seed=seed,
        published=f"SCoT d=512 L={num_layers}, N=2^14{run}",
    )


def scot_large(max_cot_length: int) -> Training:
    """Return an SCoT model of width 768."""
    power = max_cot_length.bit_length() - 1
    return Training(
        arm=f"scot-l12-n{max_cot_length}",
        label=f"SCoT d=768 L=12, N=2^{power}",
        mode="scot",
        model="paper-l12",
        num_layers=12,
        samples=("random", "hardest"),
        max_cot_length=max_cot_length,
        published=f"SCoT d=768 L=12, N=2^{power}",
    )


def cot(
    num_layers: int,
    max_cot_length: int = LONGEST,
    *,
    precision: PrecisionName = "bf16",
    num_tokens: int = PAPER_TOKENS,
) -> Training:
    """Return a CoT model of width 512."""
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
        model=f"paper-l{num_layers}",
        num_layers=num_layers,
        samples=("targets",),
        max_cot_length=max_cot_length,
        precision=precision,
        num_tokens=num_tokens,
    )


def small(
    arm: str,
    label: str,
    *options: str,
    mode: Mode = "cot",
    model: str = "small-4x4",
    num_layers: int = 4,
    precision: PrecisionName = "fp32",
) -> Training:
    """Return a model for a small board, with the recipe of the preset `small` and some options."""
    return Training(
        arm=arm,
        label=label,
        mode=mode,
        model=model,
        num_layers=num_layers,
        samples=("all",),
        num_tokens=STUDY_TOKENS,
        budget_unit="loss_tokens",
        precision=precision,
        options=options,
    )
