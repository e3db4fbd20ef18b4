"""Options shared by `sudocot paper plan`, `run` and `report`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.columns import ColumnOptions
from data.runtime.ranges import TokenCount, check_ranges
from scripts.experiments.experiments import Experiment, get_experiment
from scripts.experiments.setups import PAPER_SOURCE, ExperimentSetup, Scale, get_setup


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Experiment, scale and folder."""

    name: Positional[str]
    """Experiment; `sudocot paper list` shows them."""
    scale: Scale = "full"
    """full, or tiny: an end-to-end test that takes a minute."""
    folder: Path | None = None
    """Folder of data, runs and results (default: runs/ and the name of the setup, such as
    runs/paper or runs/tiny-study)."""
    source: str = PAPER_SOURCE
    """Data set with the splits train and test: a name on the hub, or a folder with two files."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of the tables of the data set."""
    tokens: TokenCount | None = None
    """Token budget of every training; overrides the experiment's."""
    seeds: Annotated[int, Ge(1), Le(1000)] | None = None
    """Number of seeds of every training; overrides the experiment's."""

    def __post_init__(self) -> None:
        setup = get_experiment(self.name).setup
        check_ranges(self)
        is_source_set = self.source != PAPER_SOURCE or self.columns != ColumnOptions()
        if is_source_set and (self.scale == "tiny" or setup != "paper"):
            raise ValueError(
                f"source: got {' '.join((self.source, *self.columns.words))}, allowed with "
                "generated puzzles is none"
            )

    @property
    def experiment(self) -> Experiment:
        """The experiment, with `tokens` and `seeds` applied."""
        return get_experiment(self.name).with_changes(tokens=self.tokens, seeds=self.seeds)

    @property
    def setup(self) -> ExperimentSetup:
        """Data and base configuration."""
        return get_setup(
            self.experiment, scale=self.scale, source=self.source, columns=self.columns
        )

    @property
    def root(self) -> Path:
        """Folder of data, runs and results."""
        return self.folder or Path("runs", self.setup.name)

    @property
    def words(self) -> tuple[str, ...]:
        """The settings as words of a command line."""
        words = [self.name]
        if self.scale != "full":
            words += ["--scale", self.scale]
        if self.folder is not None:
            words += ["--folder", str(self.folder)]
        if self.source != PAPER_SOURCE:
            words += ["--source", self.source]
        words += self.columns.words
        for name in ("tokens", "seeds"):
            if getattr(self, name) is not None:
                words += [f"--{name}", str(getattr(self, name))]
        return tuple(words)
