"""`sudocot paper costs`: estimated costs of data, trainings and evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from data.runtime.files import publish_page
from scripts.experiments.costs_page import costs_page


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Estimate the costs of the paper's experiments and their bottlenecks.

    The rates and their sources are in scripts/experiments/rates.yaml.

    Examples:
        sudocot paper costs --out docs/costs.md
    """

    out: Path | None = None
    """Markdown file to write (default: standard output)."""


def main(config: Config) -> int:
    """Write or print the page."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    page = costs_page()
    if config.out is None:
        console.print(page, end="")
        return 0
    config.out.parent.mkdir(parents=True, exist_ok=True)
    publish_page(config.out, page)
    console.print(f"page in {config.out}")
    return 0
