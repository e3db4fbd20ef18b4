"""`sudocot eval card`: writes evaluation results into a model folder for the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from eval.results.folder import EvaluationFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Write the accuracy of finished evaluations into the model folder, in formats of the hub.

    Adds them to the `model-index` of README.md, and one file for each to `.eval_results`. Earlier
    results of the same kind are replaced; the rest of the card is preserved.

    Examples:
        sudocot eval card evals/10k evals/hardest --model runs/scot/final
        sudocot eval card evals/10k --model m --dataset sapientinc/sudoku-extreme --split test
    """

    evaluations: Positional[tuple[Path, ...]]
    """Evaluation folders, of random, hardest or all puzzles."""
    model: Path
    """Model folder or name."""
    dataset: str | None = None
    """Data set of the puzzles on the hub, owner/name; by default that of the evaluations."""
    split: str | None = None
    """Split of the data set."""
    task_id: str = "default"
    """Task in the data set's eval.yaml."""
    source_url: str | None = None
    """URL of the evaluation."""

    def __post_init__(self) -> None:
        if not self.evaluations:
            raise ValueError("evaluations: got none, allowed is at least one folder")


def main(config: Config) -> int:
    """Write the files and print their paths."""
    from eval.network.model_folder import ModelFolder
    from eval.publish.hub_card import HUB_NAME, Benchmark, benchmark_of, write_card

    folders = [EvaluationFolder.open(path) for path in config.evaluations]
    found = {benchmark_of(folder) for folder in folders}
    dataset, split = config.dataset, config.split
    if dataset is None:
        known = found.pop()
        if known is None or found:
            names = ", ".join(sorted({folder.config.data.name for folder in folders}))
            raise ValueError(f"dataset: required for {names}: the hub data set of the puzzles")
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
