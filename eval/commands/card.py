"""`sudocot eval card`: results in a model folder, as the hub reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from eval.results.folder import EvaluationFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write the accuracy of finished evaluations into the model's folder, for the hub.

    README.md gets them as `model-index`, and `.eval_results` a file for each. Doing it again
    replaces them; what else is in the card stays.

    Examples:
        sudocot eval card evals/10k evals/hardest --model runs/scot/final
        sudocot eval card evals/10k --model m --dataset sapientinc/sudoku-extreme --split test
    """

    evaluations: Positional[tuple[Path, ...]]
    """Folders of evaluations: random, hardest or all puzzles."""
    model: Path
    """Model folder."""
    dataset: str | None = None
    """Data set on the hub that the puzzles are of, owner/name; known if they came from there."""
    split: str | None = None
    """Its split."""
    task_id: str = "default"
    """Task, as the data set's eval.yaml names it."""
    source_url: str | None = None
    """Where the evaluation can be looked up."""

    def __post_init__(self) -> None:
        if not self.evaluations:
            raise ValueError("evaluations: got none, allowed is at least one folder")


def main(config: Config) -> int:
    """Write the files and name them."""
    from eval.network.model_folder import ModelFolder
    from eval.publish.hub_card import HUB_NAME, Benchmark, benchmark_of, write_card

    folders = [EvaluationFolder.open(path) for path in config.evaluations]
    found = {benchmark_of(folder) for folder in folders}
    dataset, split = config.dataset, config.split
    if dataset is None:
        known = found.pop()
        if known is None or found:
            names = ", ".join(sorted({folder.config.data.name for folder in folders}))
            raise ValueError(f"dataset: give the one on the hub that the puzzles are of ({names})")
        dataset, split = known[0], split or known[1]
    match = HUB_NAME.fullmatch(dataset)
    if match is None or match[2]:
        raise ValueError(f"dataset: got {dataset!r}, allowed is owner/name")
    paths = write_card(
        config.model,
        folders,
        digest=ModelFolder.open(config.model).weights_digest,
        benchmark=Benchmark(
            dataset_id=dataset, split=split, task_id=config.task_id, source_url=config.source_url
        ),
    )
    console = Console(markup=False, highlight=False, soft_wrap=True)
    for path in paths:
        console.print(str(path), markup=False)
    return 0
