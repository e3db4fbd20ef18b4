"""`sudocot publish dataset`: upload data sets to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tyro.conf import OmitArgPrefixes, Positional

from data.runtime.parallel import num_threads
from data.runtime.ranges import Workers, check_ranges
from scripts.publish.checks import dataset_problems
from scripts.publish.prepare import prepare_dataset
from scripts.publish.publish import Destination, publish


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Check data sets and upload them to the Hugging Face hub, as Parquet with a card.

    CoT and SCoT become the configs `cot` and `scot`, as written by `sudocot data export`. Refuses
    damaged data, a missing license, files with absolute paths or the host name, and splits that
    `datasets.load_dataset` cannot load; all problems are listed.

    Examples:
        sudocot publish dataset data/cot data/scot --repo you/sudoku-traces --license mit --dry-run
        sudocot publish dataset data/cot --repo you/sudoku-cot --license unknown --out upload
    """

    folders: Positional[tuple[Path, ...]]
    """Data set folders, written by `sudocot data build`, all of one board."""
    destination: OmitArgPrefixes[Destination]
    """Destination."""
    workers: Workers | None = None
    """Number of threads (default: the available CPUs)."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.folders:
            raise ValueError("folders: got none, allowed are folders of data sets")


def main(config: Config) -> int:
    """Check and upload the data sets."""
    destination = config.destination
    return publish(
        destination,
        repo_type="dataset",
        prepare=lambda out: prepare_dataset(
            config.folders,
            out,
            repo=destination.repo,
            license_id=destination.license,
            workers=num_threads(config.workers),
        ),
        find_problems=partial(dataset_problems, license_id=destination.license),
    )
