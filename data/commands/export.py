"""`sudocot data export`: export data sets to a folder for the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.export import export_datasets
from data.runtime.parallel import num_threads
from data.runtime.ranges import TokenCount, Workers, check_ranges
from data.runtime.tables import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write data sets as Parquet with a dataset card and a tokenizer, ready for `hf upload`.

    CoT and SCoT become the configs `cot` and `scot`; data sets from different splits of a source
    become splits. Without splits in the source, the split is `train`, or that of `folder:split`.

    Examples:
        sudocot data export data/cot data/scot --out upload
        sudocot data export data/cot data/cot-test:test --out upload
        hf upload NAME/sudoku-traces upload --repo-type dataset
    """

    datasets: Positional[tuple[Path, ...]]
    """Folders built by `sudocot data build`, or `folder:split` to set the split, all of one
    board."""
    out: Path
    """Output folder."""
    file_tokens: TokenCount = 1 << 29
    """Approximate tokens per Parquet file."""
    license: str | None = None
    """License for the card, as the hub names it; the card leaves the question open if not given."""
    workers: Workers | None = None
    """Number of threads; by default the CPUs available to this process."""
    rebuild: bool = False
    """Replace the folder if it exists."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.datasets:
            raise ValueError("datasets: got none, allowed are folders of data sets")


def main(config: Config) -> int:
    """Export the data sets and print their sizes."""
    parts = export_datasets(
        config.datasets,
        config.out,
        file_tokens=config.file_tokens,
        license_id=config.license,
        workers=num_threads(config.workers),
        rebuild=config.rebuild,
    )
    rows = (
        (
            f"{part.config} {part.split}",
            f"{part.manifest.num_rows:,}",
            f"{part.manifest.num_tokens:,}",
            f"{part.download_size:,}",
        )
        for part in parts
    )
    names = ("config and split", "sequences", "tokens", "bytes")
    title = f"{config.out}: see README.md there before uploading"
    print_table(Console(markup=False), title, names, rows)
    return 0
