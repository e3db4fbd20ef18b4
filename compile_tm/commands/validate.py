"""`sudocot compile validate`: random machines, compiled and compared token for token."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import track

from compile_tm.machines.random_machines import RandomMachineConfig
from compile_tm.validation import Outcome, PairResult, summarise, validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Check the constructions on random machines and inputs, as the paper does.

    Each pair is compiled with CoT and with SCoT, r between the smallest and the smallest plus 8,
    and generated token by token. Pairs are skipped only if the machine does not halt or has no
    output. Exit code 1 tells that a token was wrong, or too few pairs were left.

    Examples:
        sudocot compile validate --pairs 1000
        sudocot compile validate --pairs 10000 --seed 1 --workers 2
    """

    pairs: int = 1000
    """Machines and inputs to draw."""
    seed: int = 0
    """Seed of all draws."""
    max_steps: int = 1000
    """Steps within which a machine must halt."""
    max_extra_bits: int = 8
    """r is at most the smallest that is enough plus this."""
    min_share: float = 0.1
    """Share of pairs that must not be skipped."""
    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """Processes."""
    machines: RandomMachineConfig = field(default_factory=RandomMachineConfig)
    """Sizes of the random machines."""

    def __post_init__(self) -> None:
        for name in ("pairs", "max_steps", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed are 1 and more")
        if self.max_extra_bits < 0 or self.max_extra_bits % 2:
            raise ValueError(f"max_extra_bits: got {self.max_extra_bits}, allowed are 0, 2, 4, ..")


def main(config: Config) -> int:
    """Draw, check, count and print."""
    results: list[PairResult] = []
    pending = validate(
        config.pairs,
        seed=config.seed,
        machines=config.machines,
        max_steps=config.max_steps,
        max_extra_bits=config.max_extra_bits,
        num_workers=config.workers,
    )
    progress = Console(stderr=True)
    results.extend(track(pending, "pairs", total=config.pairs, console=progress))
    summary = summarise(results)
    console = Console(highlight=False)
    for outcome, count in summary.counts.items():
        console.print(f"{count:>10,}  {outcome.value}")
    console.print(f"{len(results):>10,}  pairs")
    console.print(f"{summary.num_tokens:>10,}  tokens compared")
    for failure in summary.failures[:20]:
        console.print(f"pair {failure.number}: {failure.detail}", markup=False)
    has_failed = summary.counts[Outcome.WRONG] > 0 or summary.share_correct < config.min_share
    return 1 if has_failed else 0
