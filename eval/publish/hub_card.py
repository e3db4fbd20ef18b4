"""Writes evaluation results into a model folder in the formats of the Hugging Face Hub.

`README.md` contains them as `model-index` in its metadata, which the hub shows on the model page;
`.eval_results/*.yaml` contains them for the leaderboard of a benchmark data set, one file per
variant. Both are written and verified with huggingface_hub. The operation is idempotent and
preserves other results, other metadata and the text of the card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    EvalResult,
    EvalResultEntry,
    ModelCard,
    eval_result_entries_to_yaml,
    parse_eval_result_entries,
)

from data.runtime.files import publish_file
from eval.results.folder import EvaluationFolder

CARD_FILE = "README.md"
RESULTS_FOLDER = ".eval_results"
HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?::(\w+))?")
_EMPTY_CARD = "---\nlibrary_name: transformers\n---\n"
_TASK_TYPE = "text-generation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """Benchmark data set on the hub."""

    dataset_id: str
    """`owner/name`."""
    split: str | None
    """Split."""
    task_id: str
    """Task as the data set's `eval.yaml` names it."""
    source_url: str | None = None
    """URL of the evaluation."""


def benchmark_of(folder: EvaluationFolder) -> tuple[str, str | None] | None:
    """Return name and split of the hub data set of an evaluation, or None."""
    match = HUB_NAME.fullmatch(folder.config.data.name)
    return (match[1], match[2]) if match else None


def write_card(
    model: Path, folders: Sequence[EvaluationFolder], *, digest: str, benchmark: Benchmark
) -> list[Path]:
    """Write the results of evaluations into a model folder.

    Args:
        model: Model folder.
        folders: Finished evaluations of this model.
        digest: Digest of the folder's weights.
        benchmark: Data set of the puzzles.

    Returns:
        Paths of the written files.

    Raises:
        ValueError: An evaluation is unfinished, of another model or not a sample of the data, two
            are of the same kind, or the metadata of the card is malformed.
    """
    labels = [_check(folder, digest=digest) for folder in folders]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"evaluations: two are {label!r}, allowed is one")
    path = model / CARD_FILE
    content = path.read_bytes().decode("utf-8-sig") if path.exists() else _EMPTY_CARD
    pairs = list(zip(folders, labels, strict=True))
    card = _card(content, pairs, benchmark)
    files = {path: card.encode()}
    for folder, label in pairs:
        name = _slug(f"{benchmark.dataset_id.partition('/')[2]} {label}")
        files[model / RESULTS_FOLDER / f"{name}.yaml"] = _entry_yaml(folder, label, benchmark)
    (model / RESULTS_FOLDER).mkdir(exist_ok=True)
    for file, file_content in files.items():
        publish_file(file, file_content)
    return list(files)


def _check(folder: EvaluationFolder, *, digest: str) -> str:
    """Return a label that distinguishes an evaluation from others on the same data."""
    config, summary = folder.config, folder.summary
    if not summary.is_complete:
        raise ValueError(
            f"{folder.path}: {summary.accuracy.num_puzzles} of {config.num_sampled} puzzles have "
            "a result; unfinished results are not published"
        )
    if config.model.digest != digest:
        raise ValueError(f"{folder.path}: the results are of other weights")
    kind = config.sampling.kind
    if kind not in ("random", "hardest", "all"):
        raise ValueError(
            f"{folder.path}: {kind} puzzles are not a sample of the data, so that their accuracy "
            "is not published"
        )
    return f"{kind} {config.num_sampled} {config.mode} {config.precision.name}"


def _card(content: str, pairs: Sequence[tuple[EvaluationFolder, str]], benchmark: Benchmark) -> str:
    """Return the card with the results of evaluations, which replace older ones of their kind."""
    try:
        card = ModelCard(content)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{CARD_FILE}: its metadata is malformed: {error}") from error
    new = [_model_index_result(folder, label, benchmark) for folder, label in pairs]
    names = {_identity(result) for result in new}
    kept = [result for result in card.data.eval_results or [] if _identity(result) not in names]
    card.data.model_name = card.data.model_name or pairs[0][0].config.model.name
    card.data.eval_results = [*kept, *new]
    written = str(card)
    read = ModelCard(written)
    assert read.data.eval_results == _grouped(card.data.eval_results), written
    assert read.text == card.text, written
    return written


def _grouped(results: list[Any]) -> list[Any]:
    """Return results in the order of a model index, which groups them by data set."""
    groups: dict[Any, list[Any]] = {}
    for result in results:
        groups.setdefault(result.unique_identifier, []).append(result)
    return [result for group in groups.values() for result in group]


def _identity(result: Any) -> tuple[Any, ...]:
    return (*result.unique_identifier, result.metric_type, result.metric_name)


def _model_index_result(folder: EvaluationFolder, label: str, benchmark: Benchmark) -> Any:
    config, accuracy = folder.config, folder.summary.accuracy
    return EvalResult(
        task_type=_TASK_TYPE,
        task_name="Sudoku",
        dataset_type=benchmark.dataset_id,
        dataset_name=benchmark.dataset_id.partition("/")[2],
        dataset_split=benchmark.split,
        metric_type="accuracy",
        metric_name=f"puzzles solved ({label})",
        metric_value=accuracy.accuracy,
        metric_args={
            "num_puzzles": accuracy.num_puzzles,
            "wilson_95": [accuracy.low, accuracy.high],
            "engine": config.engine,
            "max_new_tokens": config.caps.max_new_tokens,
            "seed": config.sampling.seed,
            "sample_digest": config.data.sample_digest,
        },
        source_url=benchmark.source_url,
    )


def _entry_yaml(folder: EvaluationFolder, label: str, benchmark: Benchmark) -> bytes:
    config, accuracy = folder.config, folder.summary.accuracy
    notes = (
        f"{label}, {accuracy.num_solved} of {accuracy.num_puzzles} solved, 95% interval "
        f"{accuracy.low:.4f} to {accuracy.high:.4f}, engine {config.engine}, "
        f"at most {config.caps.max_new_tokens} new tokens"
    )
    entry = EvalResultEntry(
        dataset_id=benchmark.dataset_id,
        task_id=benchmark.task_id,
        value=accuracy.accuracy,
        date=config.sessions[-1].started_at if config.sessions else None,
        source_url=benchmark.source_url,
        notes=notes,
    )
    content: str = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, width=100)
    assert parse_eval_result_entries(yaml.safe_load(content)) == [entry], content
    return content.encode()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())
