"""`sudocot compile validate`: compare compiled random machines token by token."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Le, Lt
from rich.console import Console
from rich.progress import track

from compile_tm.commands.folders import rounding_points
from compile_tm.conversion.rope.blueprint import Positions
from compile_tm.conversion.settings import Denoising
from compile_tm.machines.random_machines import RandomMachineConfig
from compile_tm.measure.validation import (
    Form,
    Outcome,
    PairResult,
    SoftmaxOptions,
    summarize,
    validate,
)
from data.runtime.cpus import available_cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Check the constructions on random machines and inputs, as in the paper.

    Each pair of machine and input is compiled for CoT and SCoT, with r between the minimum and the
    minimum plus 8, and decoded token by token; registers and attention scores are checked at all
    positions. Pairs are skipped only if the machine does not halt, has no output, or is too short
    (--min-steps). The exit code is 1 if a token is wrong, or too many pairs are skipped.

    --conversion checks softmax transformers with the theorems' c, with activations and, if
    denoised, attention weights rounded to a format: bf16, fp16, fp32, e4m3, e5m2, or mXeY with X
    mantissa and Y exponent bits.

    With --positions rope, machines have additional layers that extract positions from rotary
    encodings instead of a positional embedding. Converted machines and these are checked by teacher
    forcing. With several conversions or position encodings, each combination is checked on the same
    pairs.

    Examples:
        sudocot compile validate --pairs 1000
        sudocot compile validate --pairs 10000 --seed 1 --workers 2
        sudocot compile validate --conversion exact --act bf16
        sudocot compile validate --conversion denoise --act m1e3 --att m4e5
        sudocot compile validate --conversion hardmax exact denoise --positions embedding rope \
            --act bf16 --att bf16
    """

    pairs: Annotated[int, Ge(1), Le(10**9)] = 1000
    """Number of machines and inputs."""
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
    """Random seed."""
    max_steps: Annotated[int, Ge(1), Le(10**9)] = 1000
    """Maximum number of steps of a machine."""
    min_steps: Annotated[int, Ge(0), Le(10**6)] = 12
    """Minimum number of steps; machines are mutated until they reach it. 0: unmodified random
    machines as in the paper, most of which halt within 2 steps."""
    max_extra_bits: Annotated[int, Ge(0), Le(16)] = 8
    """Maximum difference between r and the smallest sufficient r."""
    min_share: Annotated[float, Ge(0), Le(1)] = 0.1
    """Minimum fraction of pairs that are not skipped."""
    workers: Annotated[int, Ge(1), Le(1024)] = field(default_factory=lambda: available_cpus()[0])
    """Number of processes."""
    positions: tuple[Positions, ...] = ("embedding",)
    """Position encodings: embedding, rope, or both."""
    conversion: tuple[Literal["hardmax", "exact", "denoise"], ...] = ("hardmax",)
    """Transformers to check: hardmax, and conversions to softmax."""
    act: str | None = None
    """Activation format (default: not rounded)."""
    att: str | None = None
    """Attention-weight format of conversion denoise (default: not rounded)."""
    denoise: Literal["every", "heads", "ties"] = "every"
    """Layers to denoise: every layer, layers with heads, or layers with ties (with a larger c)."""
    machines: RandomMachineConfig = field(default_factory=RandomMachineConfig)
    """Sizes of the random machines."""

    def __post_init__(self) -> None:
        if self.min_steps > self.max_steps:
            raise ValueError(
                f"min_steps: got {self.min_steps}, allowed is at most max_steps, {self.max_steps}"
            )
        if self.max_extra_bits % 2:
            raise ValueError(f"max_extra_bits: got {self.max_extra_bits}, allowed are 0, 2, 4, ..")
        for name in ("positions", "conversion"):
            if not getattr(self, name):
                raise ValueError(f"{name}: got no value, allowed is at least one")
        if set(self.conversion) == {"hardmax"} and self.act:
            raise ValueError("act: got a format, allowed with conversion exact or denoise")
        if "denoise" not in self.conversion and self.att:
            raise ValueError("att: got a format, allowed with conversion denoise")
        if "denoise" not in self.conversion and self.denoise != "every":
            raise ValueError(f"denoise: got {self.denoise}, allowed with conversion denoise")
        if "rope" in self.positions and self.denoise == "ties":
            raise ValueError("denoise: got ties, allowed with positions rope are every and heads")
        rounding_points(act=self.act, att=self.att)


def main(config: Config) -> int:
    """Check the pairs and print a summary."""
    results: list[PairResult] = []
    forms = _forms(config)
    start = time.perf_counter()
    pending = validate(
        config.pairs,
        seed=config.seed,
        machines=config.machines,
        max_steps=config.max_steps,
        max_extra_bits=config.max_extra_bits,
        min_steps=config.min_steps,
        num_workers=config.workers,
        forms=forms,
    )
    progress = Console(stderr=True, markup=False)
    results.extend(track(pending, "pairs", total=config.pairs, console=progress))
    summary = summarize(results)
    console = Console(markup=False, highlight=False, emoji=False)
    for outcome, count in summary.counts.items():
        console.print(f"{count:>10,}  {outcome.value}")
    console.print(f"{len(results):>10,}  pairs")
    console.print(f"{summary.num_tokens:>10,}  tokens compared: {', '.join(map(str, forms))}")
    if summary.steps:
        low, median, high = (summary.steps[p] for p in (0, len(summary.steps) // 2, -1))
        console.print(f"{median:>10,}  steps (median; minimum {low:,}, maximum {high:,})")
        console.print(f"{summary.num_with_blocks:>10,}  pairs with a position block (CoT)")
        console.print(f"{summary.num_with_summaries:>10,}  pairs with a summary (SCoT)")
    least = summary.least_margin
    if least is not None and least.margin is not None:
        place = f"layer {least.margin.layer}, head {least.margin.head} of pair {least.number}"
        console.print(f"{least.margin.margin:>10g}  smallest margin of attention scores, {place}")
    console.print(f"{time.perf_counter() - start:>10,.0f}  seconds")
    for failure in summary.failures[:20]:
        console.print(f"pair {failure.number}: {failure.detail}", markup=False)
    has_failed = summary.counts[Outcome.WRONG] > 0 or summary.share_correct < config.min_share
    return 1 if has_failed else 0


def _forms(config: Config) -> list[Form]:
    """Return each combination of conversion and position encoding once."""
    forms = []
    for positions in dict.fromkeys(config.positions):
        for conversion in dict.fromkeys(config.conversion):
            softmax = None
            if conversion == "exact":
                points = rounding_points(act=config.act, att=None)
                softmax = SoftmaxOptions(conversion=conversion, points=points)
            elif conversion == "denoise":
                points = rounding_points(act=config.act, att=config.att)
                where = Denoising(config.denoise)
                softmax = SoftmaxOptions(conversion=conversion, points=points, where=where)
            forms.append(Form(positions=positions, softmax=softmax))
    return forms
