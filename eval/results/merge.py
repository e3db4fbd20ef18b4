"""Merges the parts of an evaluation that was run as a job array."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from data.runtime.files import check_replaceable, remove_superseded, staged_directory
from data.runtime.locks import locked_output
from data.runtime.parts import Part, find_parts, parts_folder
from eval.engines.text.replies import REPLIES_FILE
from eval.results.folder import CONFIG_FILE, RESULTS_FILE, TOKENS_FILE, EvaluationFolder
from eval.results.runner import different_settings, part_of_sample

logger = logging.getLogger(__name__)


def merge(out: Path, *, rebuild: bool = False) -> EvaluationFolder:
    """Merge the parts in `<out>.parts` into the evaluation `out` and remove them.

    The operation is idempotent, and an interrupted merge can be repeated.

    Args:
        out: Folder of the merged evaluation.
        rebuild: Replace an existing evaluation.

    Raises:
        FileExistsError: `out` is a different evaluation and `rebuild` is False, or `out` is not an
            evaluation.
        FileNotFoundError: Parts are missing; the message lists them.
        ValueError: The parts belong to different evaluations, or a puzzle is in two parts or none.
    """
    with locked_output(out):
        return _merge(out, rebuild=rebuild)


def _merge(out: Path, *, rebuild: bool) -> EvaluationFolder:
    if out.exists() and not rebuild:
        return _finish_merge(out)
    check_replaceable(out, marker=CONFIG_FILE)
    paths = find_parts(out, marker=CONFIG_FILE)
    folders = [EvaluationFolder.open(path) for path in paths]
    first = folders[0]
    owners: dict[str, EvaluationFolder] = {}
    for folder in folders:
        differences = different_settings(first.config, folder.config)
        if differences:
            raise ValueError(
                f"{folder.path}: differs from {first.path.name} in {'; '.join(differences)}"
            )
        for row in folder.rows:
            if row.key in owners:
                names = f"{owners[row.key].path.name} and {folder.path.name}"
                raise ValueError(f"{out}: puzzle {row.key} is in both {names}")
            owners[row.key] = folder
    _check_complete(first, folders, found=owners.keys())
    sessions = tuple(session for folder in folders for session in folder.config.sessions)
    with staged_directory(out, replace=rebuild) as staged:
        merged = EvaluationFolder.create(
            staged, replace(first.config, sessions=sessions), first.sample
        )
        for name in (RESULTS_FILE, TOKENS_FILE, REPLIES_FILE):
            files = [path / name for path in paths if (path / name).exists()]
            if files:
                (staged / name).write_bytes(b"".join(file.read_bytes() for file in files))
        merged.finish()
    remove_superseded(paths[0].parent)
    return EvaluationFolder.open(out)


def _finish_merge(out: Path) -> EvaluationFolder:
    """Remove the remaining parts after an interrupted merge; `out` is created atomically."""
    parts = parts_folder(out)
    left = [EvaluationFolder.open(path.parent) for path in parts.glob(f"*-of-*/{CONFIG_FILE}")]
    merged = EvaluationFolder.open(out) if (out / CONFIG_FILE).exists() else None
    if (
        merged is None
        or not merged.is_complete
        or any(different_settings(merged.config, part.config) for part in left)
    ):
        raise FileExistsError(
            f"{out}: exists and was not merged from these parts; --rebuild replaces it"
        )
    if parts.exists():
        remove_superseded(parts)
    logger.info("%s: already merged", out)
    return merged


def _check_complete(
    first: EvaluationFolder, folders: Sequence[EvaluationFolder], *, found: Collection[str]
) -> None:
    for index, folder in enumerate(folders):
        part = Part(index=index, count=len(folders))
        missing = [p.key for p in part_of_sample(first.sample, part) if p.key not in found]
        if missing:
            raise ValueError(
                f"{folder.path}: puzzles without a result: {len(missing)}, the first is "
                f"{missing[0]}; run this part again to finish it"
            )
