"""`sudocot publish dataset`: data sets as a repository on the Hugging Face hub."""

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

    CoT and SCoT become the configs `cot` and `scot`, as `sudocot data export` makes them. Refused
    are damaged data, an unstated licence, files that name paths or the host of this machine, and
    what `datasets.load_dataset` does not read; all at once.

    Examples:
        sudocot publish dataset data/cot data/scot --repo you/sudoku-traces --license mit --dry-run
        sudocot publish dataset data/cot --repo you/sudoku-cot --license unknown --out upload
    """

    folders: Positional[tuple[Path, ...]]
    """Folders that `sudocot data build` made, all of one board."""
    destination: OmitArgPrefixes[Destination]
    """Where to."""
    workers: Workers | None = None
    """Threads; by default the CPUs that this process may use."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.folders:
            raise ValueError("folders: got none, allowed are folders of data sets")


def main(config: Config) -> int:
    """Publish, after a table of what goes there."""
    destination = config.destination
    return publish(
        destination,
        repo_type="dataset",
        prepare=lambda out: prepare_dataset(
            config.folders,
            out,
            repo=destination.repo,
            licence=destination.license,
            workers=num_threads(config.workers),
        ),
        find_problems=partial(dataset_problems, licence=destination.license),
    )
