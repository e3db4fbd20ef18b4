"""Add a trained model to `eval/models`: `python -m scripts.models.ship --help`.

Run it twice: first without evaluations, to write the folder with bf16 weights, then with
evaluations of that folder, to write the card and the catalog entry. With a name only,
it renders the card again and keeps weights, notes, results and the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import tyro
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from data.model_format.facts import ModelFacts, read_facts
from data.runtime.digests import file_digest
from data.runtime.files import publish_file
from eval.results.folder import EvaluationFolder
from eval.results.records import SampledPuzzle
from scripts.models.catalog import (
    CATALOG_FILE,
    MODELS_FOLDER,
    WEIGHTS_FILE,
    Score,
    TrainedModel,
    read_catalog,
    write_catalog,
)
from solver.mrv.trace_lines import trace_lines
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle
from training.checkpoints.export import export_model, read_pretrained
from training.checkpoints.model_card import model_card

CARD_FILE = "README.md"
BRANCH_GROUPS = ((0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 10**9))
"""Ranges of the number of branches in the solver's trace, for results by group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Add a model to the catalog, with bf16 weights and a card."""

    name: str
    """Name of the model."""
    model: Path | None = None
    """The `final` folder of a run; None keeps the existing weights."""
    evaluations: tuple[str, ...] = ()
    """Finished evaluations, each as `DESCRIPTION OF THE TEST SET=FOLDER`."""
    num_tokens: int | None = None
    """Total training tokens, if the run was initialized from another model (default: those of the
    run, or of the catalog entry without `model`)."""
    notes: Path | None = None
    """Markdown for the card: data, command, time, limits. It is required with `evaluations`."""
    folder: Path = MODELS_FOLDER
    """Folder of the catalog."""


def main(config: Config) -> int:
    """Write the folder, the card and the catalog entry.

    Raises:
        ValueError: Only one of notes and evaluations is given, which would remove the other from
            card and catalog; or an evaluation is of other weights, or not finished.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    target = config.folder / config.name
    has_results = bool(config.evaluations), config.notes is not None
    if config.model is None and not any(has_results):
        if config.num_tokens is not None:
            raise ValueError("num_tokens: requires model, or notes and evaluations")
        refresh_card(target)
        return 0
    if any(has_results) and not all(has_results):
        raise ValueError("evaluations, notes: got one of them, allowed are both or none")
    if config.model is not None:
        export_bf16(config.model, target)
    evaluations = [_open_evaluation(words) for words in config.evaluations]
    notes = "" if config.notes is None else config.notes.read_text(encoding="utf-8")
    models = read_catalog(config.folder) if (config.folder / CATALOG_FILE).exists() else {}
    num_tokens = config.num_tokens
    if num_tokens is None and config.model is None and config.name in models:
        num_tokens = models[config.name].num_tokens
    models[config.name] = catalog_entry(target, evaluations, num_tokens=num_tokens)
    write_catalog(dict(sorted(models.items())), config.folder)
    write_notes(target / CARD_FILE, notes + results_text(evaluations))
    return 0


def read_model(folder: Path) -> PreTrainedModel:
    """Load a model folder in fp32, as `read_pretrained`."""
    return read_pretrained(cast("type[PreTrainedModel]", AutoModelForCausalLM), folder)


def export_bf16(source: Path, target: Path) -> None:
    """Export a copy of a model folder with weights rounded to bf16."""
    model = read_model(source)
    nn.Module.to(model, torch.bfloat16)
    export_model(model, target, facts=read_facts(source))


def _open_evaluation(words: str) -> tuple[str, EvaluationFolder]:
    test_set, _, folder = words.rpartition("=")
    if not test_set:
        raise ValueError(f"evaluations: got {words!r}, allowed is TEST SET=FOLDER")
    return test_set, EvaluationFolder.open(folder)


def catalog_entry(
    folder: Path,
    evaluations: Sequence[tuple[str, EvaluationFolder]],
    *,
    num_tokens: int | None = None,
) -> TrainedModel:
    """Return the catalog entry of a model.

    Raises:
        ValueError: An evaluation is of other weights, or not finished.
    """
    from eval.network.model_folder import ModelFolder

    model, facts = ModelFolder.open(folder), read_facts(folder)
    for test_set, evaluation in evaluations:
        if evaluation.config.model.digest != model.weights_digest:
            raise ValueError(f"{evaluation.path}: {test_set}: not of the weights in {folder}")
        if not evaluation.is_complete:
            raise ValueError(f"{evaluation.path}: {test_set}: not finished")
    return TrainedModel(
        name=folder.name,
        board=facts.board,
        mode=facts.mode,
        segment_tokens=facts.segment_tokens,
        num_parameters=model.num_parameters,
        num_tokens=num_tokens or _num_tokens(facts),
        sha256=file_digest(folder / WEIGHTS_FILE),
        scores=tuple(
            Score(
                test_set=test_set,
                num_solved=sum(row.is_solved for row in evaluation.rows),
                num_puzzles=len(evaluation.rows),
            )
            for test_set, evaluation in evaluations
        ),
    )


def _num_tokens(facts: ModelFacts) -> int:
    return int(facts.training["num_tokens"])


def results_text(evaluations: Sequence[tuple[str, EvaluationFolder]]) -> str:
    """Return Markdown tables of results for each test set, by number of branches and in total."""
    if not evaluations:
        return ""
    lines = [
        "",
        "## Results",
        "",
        "Greedy decoding with the weights in this folder; 95% Wilson intervals.",
        "",
    ]
    for test_set, evaluation in evaluations:
        lines += [f"**{test_set}**", "", "| branches in the solver's trace | solved |", "|---|---|"]
        lines += [f"| {group} | {score} |" for group, score in scores_by_branches(evaluation)]
        ends = [(end, n) for end, n in sorted(evaluation.summary.finish_reasons.items()) if n]
        lines += [
            "",
            "Finish reasons: " + ", ".join(f"{end} {count:,}" for end, count in ends) + ".",
            "",
        ]
    return "\n".join(lines)


def scores_by_branches(evaluation: EvaluationFolder) -> Iterator[tuple[str, Score]]:
    """Yield the scores by number of branches in the solver's trace, then the total."""
    puzzles = {puzzle.key: puzzle for puzzle in evaluation.sample}
    branches = np.array([_num_branches(evaluation, puzzles[row.key]) for row in evaluation.rows])
    solved = np.array([row.is_solved for row in evaluation.rows])
    for low, high in BRANCH_GROUPS:
        group = (branches >= low) & (branches <= high)
        if group.any():
            words = f"{low}" if low == high else f"{low} to {min(high, int(branches.max()))}"
            yield words, _score(solved[group])
    yield "all", _score(solved)


def _score(solved: Any) -> Score:
    return Score(test_set="puzzles", num_solved=int(solved.sum()), num_puzzles=len(solved))


def _num_branches(evaluation: EvaluationFolder, puzzle: SampledPuzzle) -> int:
    """Return the number of trace lines with two or more candidates."""
    board, grid = parse_puzzle(puzzle.givens, board=evaluation.board)
    prompt_length = 2 * int(np.count_nonzero(grid)) + 2
    lines = trace_lines(board, trace(board, grid).tokens[prompt_length:])
    return int((lines.num_candidates > 1).sum())


NOTES_MARK = "<!-- notes and results -->"


def write_notes(card: Path, text: str) -> None:
    """Append text to a card, replacing the text of an earlier call."""
    head = card.read_text(encoding="utf-8").partition(NOTES_MARK)[0].rstrip("\n")
    publish_file(card, f"{head}\n\n{NOTES_MARK}\n\n{text}".encode())


def refresh_card(folder: Path) -> None:
    """Render the card of a model folder again, with its notes and results."""
    card = folder / CARD_FILE
    notes = card.read_text(encoding="utf-8").partition(NOTES_MARK)[2].lstrip("\n")
    publish_file(card, model_card(folder).encode())
    write_notes(card, notes)


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
