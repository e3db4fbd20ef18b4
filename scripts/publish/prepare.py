"""Preparation of the folder to upload, from a data set or a model.

Only files on an allow list are copied, so that notes or optimizer states in a model folder are not
published.

    README.md       card with the license
    SHA256SUMS      digests of all other files, in the format of `sha256sum --check`
    ...             the model folder of `training.checkpoints.export`, or the data set of
                    `data.export`
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from data.export import export_datasets
from data.runtime.digests import DIGESTS_FILE, file_digest, read_digests, write_digests
from scripts.publish.checks import CARD_FILE, read_card

_MODEL_FILES = (
    CARD_FILE,
    "LICENSE*",
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "sudocot.json",
    ".eval_results/*.yaml",
)
_COMPILED_FILES = ("modeling_compiled.py", "compiled.json")
"""Files that identify a folder written by `sudocot compile`."""

logger = logging.getLogger(__name__)


class PreparedFile(NamedTuple):
    """File to upload."""

    name: str
    """Path in the repository."""
    num_bytes: int
    """Size."""
    sha256: str
    """SHA-256, hex."""


def prepare_model(folder: Path, out: Path, *, license_id: str | None) -> None:
    """Copy the files of a model into the new folder `out`, and set the license in its card.

    Raises:
        OSError: `folder` is not a folder.
        ValueError: it is a compiled model, which has further files.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder}: not a folder")
    if any((folder / name).exists() for name in _COMPILED_FILES):
        raise ValueError(
            f"{folder}: compiled models are not supported; "
            f"upload the folder with `hf upload OWNER/NAME {folder}`"
        )
    out.mkdir()
    for name in file_names(folder):
        if _belongs_to_model(name):
            target = out / name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, target)
        else:
            logger.warning("%s: skipped, not a model file", folder / name)
    if license_id is not None and (out / CARD_FILE).exists():
        _set_license(out / CARD_FILE, license_id)


def prepare_dataset(
    folders: Sequence[Path], out: Path, *, repo: str, license_id: str | None, workers: int
) -> None:
    """Export data sets into `out`, which must not exist.

    Raises:
        ValueError: the data sets are incompatible, or one is damaged.
        OSError: one cannot be read.
    """
    export_datasets(folders, out, license_id=license_id, workers=workers, repository=repo)


def write_sums(folder: Path) -> list[PreparedFile]:
    """Write the digests of all files into the folder, and return all files."""
    names = file_names(folder)
    write_digests(folder, names)
    digests = {**read_digests(folder), DIGESTS_FILE: file_digest(folder / DIGESTS_FILE)}
    return [
        PreparedFile(name, (folder / name).stat().st_size, digests[name])
        for name in (*names, DIGESTS_FILE)
    ]


def file_names(folder: Path) -> list[str]:
    """Return the sorted relative paths of all files in a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _belongs_to_model(name: str) -> bool:
    return any(
        fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in _MODEL_FILES
    )


def _set_license(path: Path, license_id: str) -> None:
    try:
        card = read_card(path)
    except ValueError:
        return  # reported by a check
    card.data.license = license_id
    path.write_text(str(card), encoding="utf-8")
