"""The options that `sudocot paper plan`, `run` and `report` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from tyro.conf import Positional

from data.runtime.ranges import TokenCount, check_ranges
from scripts.experiments.experiments import Experiment, get_experiment
from scripts.experiments.worlds import PAPER_SOURCE, Scale, World, get_world


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Which experiment, in which form, and where."""

    name: Positional[str]
    """Experiment; `sudocot paper list` shows them."""
    scale: Scale = "full"
    """The experiment itself, or the tiny form that ends in a minute."""
    folder: Path | None = None
    """Folder of data, runs and results; by default runs/paper, runs/study or runs/tiny."""
    source: str = PAPER_SOURCE
    """Data set with the splits train and test: a name on the hub, or a folder with two files."""
    tokens: TokenCount | None = None
    """Tokens of every training, in place of the experiment's."""
    seeds: Annotated[int, Ge(1), Le(1000)] | None = None
    """Trainings of every model, in place of the experiment's."""

    def __post_init__(self) -> None:
        get_experiment(self.name)
        check_ranges(self)

    @property
    def experiment(self) -> Experiment:
        """The experiment, with the tokens and seeds asked for."""
        return get_experiment(self.name).with_changes(tokens=self.tokens, seeds=self.seeds)

    @property
    def world(self) -> World:
        """Data and recipe."""
        return get_world(self.experiment, scale=self.scale, source=self.source)

    @property
    def root(self) -> Path:
        """Folder of data, runs and results."""
        return self.folder or Path("runs", self.world.name)

    @property
    def words(self) -> tuple[str, ...]:
        """The same on a command line."""
        words = [self.name]
        if self.scale != "full":
            words += ["--scale", self.scale]
        if self.folder is not None:
            words += ["--folder", str(self.folder)]
        if self.source != PAPER_SOURCE:
            words += ["--source", self.source]
        for field in ("tokens", "seeds"):
            if getattr(self, field) is not None:
                words += [f"--{field}", str(getattr(self, field))]
        return tuple(words)
