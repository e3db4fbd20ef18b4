"""`sudocot paper costs`: what data, trainings and evaluations cost, on a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from data.runtime.files import publish_page
from scripts.experiments.costs_page import costs_page


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Work out what the paper's experiments cost, and name what limits each.

    The rates stand in scripts/experiments/rates.yaml, each with its source.

    Examples:
        sudocot paper costs --out docs/costs.md
    """

    out: Path | None = None
    """Markdown file to write; by default it is printed."""


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
