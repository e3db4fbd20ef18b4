"""`sudocot verify`: check the integrity of folders and tables written by sudocot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.lengths.table import LengthsTable
from data.model_format.facts import FACTS_FILE
from data.runtime.digests import DIGESTS_FILE, find_damaged, read_digests
from data.runtime.documents import read_json
from data.runtime.files import to_json
from data.store import MANIFEST_NAME, TokenStore, metadata_files
from eval.results.folder import CONFIG_FILE as EVALUATION_FILE
from eval.results.folder import RESULTS_FILE, SUMMARY_FILE, EvaluationFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Check data sets, CoT length tables, trainings, models and evaluations for damage.

    Compares every file of data sets, evaluations and uploads with its digest in SHA256SUMS, and
    recomputes derived files; compares the weights of models and the files of checkpoints with
    their digests. The exit code is 1 if anything differs.

    Examples:
        sudocot verify data/cot
        sudocot verify runs/scot evals/10k lengths.parquet
    """

    paths: Positional[tuple[Path, ...]]
    """Folders and CoT length tables."""

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("paths: got none, allowed is at least one")


def main(config: Config) -> int:
    """Check all paths; return 0 if all are intact, else 1."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    is_intact = True
    for path in config.paths:
        kind, problems = verify(path)
        for problem in problems:
            console.print(problem)
        console.print(f"{path}: {kind}, {f'{len(problems)} problems' if problems else 'intact'}")
        is_intact &= not problems
    return 0 if is_intact else 1


def verify(path: Path) -> tuple[str, list[str]]:
    """Check a folder or a CoT length table.

    Returns:
        Its kind, and a line per problem.

    Raises:
        OSError: it does not exist.
        ValueError: it was not written by sudocot.
    """
    checks = {
        MANIFEST_NAME: ("data set", _check_data_set),
        EVALUATION_FILE: ("evaluation", _check_evaluation),
        FACTS_FILE: ("model", _check_model),
        "checkpoints": ("training run", _check_run),
        DIGESTS_FILE: ("folder", _check_digests),
    }
    if path.is_file():
        checks = {"": ("CoT length table", _check_table)}
    elif not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    elif not path.is_dir():
        raise ValueError(f"{path}: neither a folder nor a regular file")
    for marker, (kind, check) in checks.items():
        if (path / marker).exists():
            try:
                return kind, list(check(path))
            except (ValueError, KeyError, TypeError, OSError) as error:
                return kind, [str(error)]
    raise ValueError(f"{path}: not a data set, training run, model or evaluation of sudocot")


def _check_table(path: Path) -> Iterator[str]:
    LengthsTable.open(path)
    yield from ()


def _check_data_set(path: Path) -> Iterator[str]:
    for name, content in metadata_files(TokenStore.open(path).manifest).items():
        if (path / name).read_bytes() != content:
            yield f"{path / name}: inconsistent with {MANIFEST_NAME}"
    yield from _check_digests(path)


def _check_digests(path: Path) -> Iterator[str]:
    yield from find_damaged(path, read_digests(path))


def _check_evaluation(path: Path) -> Iterator[str]:
    from eval.results.score import rescored_rows

    yield from _check_digests(path)
    folder = EvaluationFolder.open(path)
    for old, new in rescored_rows(folder):
        if old.finish_reason is not new.finish_reason:
            reasons = f"{old.finish_reason}, scored {new.finish_reason}"
            yield f"{path / RESULTS_FILE}: puzzle {old.key}: {reasons}"
    summary = path / SUMMARY_FILE
    if summary.exists() and summary.read_bytes() != to_json(folder.summary_record):
        yield f"{summary}: inconsistent with {RESULTS_FILE}"


def _check_model(path: Path) -> Iterator[str]:
    from eval.network.model_folder import ModelFolder

    yield from _check_digests(path)
    if ModelFolder.open(path).weights_digest != read_json(path / FACTS_FILE)["weights_digest"]:
        yield f"{path}: the weights differ from the digest in {FACTS_FILE}"


def _check_run(path: Path) -> Iterator[str]:
    from training.checkpoints.checkpoint import find_fault
    from training.run_folder import RunFolder, read_run_config

    read_run_config(path)
    run = RunFolder(path)
    for checkpoint in sorted(run.checkpoints.glob("step-*")):
        fault = find_fault(checkpoint)
        if fault is not None:
            yield f"{checkpoint}: {fault}"
    if run.is_finished:
        yield from _check_model(run.final)
