"""Published results of other models, read from a data file; never ranked with evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Literal, get_args

import yaml
from annotated_types import Ge, Le

from data.runtime.intervals import wilson_interval
from data.runtime.schema import parse_record

PUBLISHED_FILE = "published.yaml"
Regime = Literal["full", "small", "none", "other"]
Reporter = Literal["authors", "others", "secondary"]
REGIME_TITLES: dict[Regime, str] = {
    "full": "Trained on the full training set of Sudoku-Extreme (3.8 million puzzles)",
    "small": "Trained on 1,000 puzzles of Sudoku-Extreme",
    "none": "Not trained on Sudoku",
    "other": "Another or an unstated training or test set: not comparable",
}
REPORTER_TITLES: dict[Reporter, str] = {
    "authors": "its authors",
    "others": "others, who ran it",
    "secondary": "a summary; the source was not read",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedResult:
    """A published result."""

    method: str
    """Name of the method or model."""
    regime: Regime
    """Training data."""
    accuracy: Annotated[float, Ge(0), Le(100)]
    """Solved puzzles in percent."""
    test_set: str
    """Test puzzles."""
    reported: Reporter
    """Who reported the number."""
    source: str
    """Publication and table or section."""
    url: str
    """URL of the source."""
    caveats: tuple[str, ...]
    """Limits of comparability."""
    year: int | None = None
    """Year of the source."""
    parameters: int | None = None
    """Number of parameters, if stated."""
    num_tested: int | None = None
    """Number of test puzzles, if stated."""
    hardest: int | None = None
    """Number of solved puzzles among the 100 hardest by CoT length, if stated."""
    compute: str | None = None
    """Test-time compute."""

    def __post_init__(self) -> None:
        if not self.url.startswith("https://"):
            raise ValueError(f"url: got {self.url!r}, allowed is https://...")

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% Wilson interval as shares, computed from `num_tested`; None if that is unknown."""
        if self.num_tested is None:
            return None
        num_solved = round(self.num_tested * self.accuracy / 100)
        return wilson_interval(num_solved, trials=self.num_tested)


def read_published() -> dict[Regime, list[PublishedResult]]:
    """Return the results of the data file by regime, in the order of the file.

    Raises:
        ValueError: An entry is malformed; the message names its method.
    """
    text = resources.files("eval.report").joinpath(PUBLISHED_FILE).read_text(encoding="utf-8")
    return parse_published(text)


def parse_published(text: str) -> dict[Regime, list[PublishedResult]]:
    """Parse the text of a data file (`read_published`)."""
    results: dict[Regime, list[PublishedResult]] = {regime: [] for regime in get_args(Regime)}
    content = yaml.safe_load(text)
    for result in parse_record(tuple[PublishedResult, ...], content, path=PUBLISHED_FILE):
        results[result.regime].append(result)
    return results
