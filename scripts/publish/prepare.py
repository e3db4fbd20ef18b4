"""The folder that goes to the hub, made from a data set or a model; nothing is uploaded here.

It holds what the hub needs and nothing else: a list of names says what belongs into it, so that a
note or an optimiser state that lies beside a model stays where it is.

    README.md       the card, which states the licence
    SHA256SUMS      digests of all other files, as `sha256sum --check` reads them
    ...             the model folder of `training.checkpoints.export`, or the data set of
                    `data.export`
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from data.export import export_datasets
from data.runtime.files import publish_file
from scripts.publish.checks import CARD_FILE, SUMS_FILE, read_card

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
"""A file that the folders of `sudocot compile` have, and no other."""

logger = logging.getLogger(__name__)


class PreparedFile(NamedTuple):
    """A file that will be uploaded."""

    name: str
    """Path in the repository."""
    num_bytes: int
    """Size."""
    sha256: str
    """Digest, hex."""


def prepare_model(folder: Path, out: Path, *, licence: str | None) -> None:
    """Copy what belongs to a model into the new folder `out`, and put the licence into its card.

    Raises:
        OSError: it is no folder.
        ValueError: it is a compiled model, whose code and machine are no part of a trained one.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder}: no folder")
    if any((folder / name).exists() for name in _COMPILED_FILES):
        raise ValueError(
            f"{folder}: a compiled model is not checked here; "
            f"`hf upload OWNER/NAME {folder}` uploads the folder whole"
        )
    out.mkdir()
    for name in file_names(folder):
        if _belongs_to_model(name):
            target = out / name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, target)
        else:
            logger.warning("%s: left out, it is no part of a model", folder / name)
    if licence is not None and (out / CARD_FILE).exists():
        _set_licence(out / CARD_FILE, licence)


def prepare_dataset(
    folders: Sequence[Path], out: Path, *, repo: str, licence: str | None, workers: int
) -> None:
    """Export data sets into `out`, which must not exist.

    Raises:
        ValueError: the data sets do not go together, or one is damaged.
        OSError: one cannot be read.
    """
    export_datasets(folders, out, license_id=licence, workers=workers, repository=repo)


def write_sums(folder: Path) -> list[PreparedFile]:
    """Write the digests of all files into the folder, and return all there is in it."""
    files = [_describe(folder, name) for name in file_names(folder)]
    lines = (f"{file.sha256}  {file.name}\n" for file in files)
    publish_file(folder / SUMS_FILE, "".join(lines).encode())
    return [*files, _describe(folder, SUMS_FILE)]


def file_names(folder: Path) -> list[str]:
    """Paths of all files in a folder, relative to it, sorted."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _belongs_to_model(name: str) -> bool:
    return any(
        fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in _MODEL_FILES
    )


def _describe(folder: Path, name: str) -> PreparedFile:
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return PreparedFile(name, (folder / name).stat().st_size, digest)


def _set_licence(path: Path, licence: str) -> None:
    try:
        card = read_card(path)
    except ValueError:
        return  # a check names what is wrong with it
    card.data.license = licence
    path.write_text(str(card), encoding="utf-8")
