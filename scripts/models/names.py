"""Resolution of `--model`: a model folder, or the name of a trained or compiled model."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any, TypeVar

from scripts.models.catalog import read_catalog, trained_model_folder
from scripts.models.compiled import COMPILED_MODELS, compiled_model_folder

MODEL_OPTIONS = ("model", "init_from")
"""Config fields that name a model."""

ConfigT = TypeVar("ConfigT")


def resolve_model(model: Path, *, option: str = "model") -> Path:
    """Return the folder of a model; an existing folder takes precedence over a named model.

    Args:
        model: Folder or name.
        option: Name of the option in errors.

    Raises:
        FileNotFoundError: The files of a named model are not part of this installation.
        ValueError: There is neither a folder nor a model of that name.
    """
    name = str(model)
    if model.exists() or len(model.parts) != 1:
        return model
    if name in COMPILED_MODELS:
        return compiled_model_folder(name)
    catalog = read_catalog()
    if name in catalog:
        return trained_model_folder(catalog[name])
    names = [*catalog, *COMPILED_MODELS]
    nearest = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise ValueError(
        f"{option}: got {name!r}, {guess}allowed are a model folder and the names "
        f"{', '.join(names)}"
    )


def with_model_folders(config: ConfigT) -> ConfigT:
    """Replace model names in a config by folders.

    Unknown names in `str` fields are unchanged, since they can be presets or models of a server.

    Raises:
        FileNotFoundError: The files of a named model are not part of this installation.
        ValueError: There is neither a folder nor a model of that name.
    """
    changes: dict[str, Any] = {}
    for option in MODEL_OPTIONS:
        value = getattr(config, option, None)
        if option == "init_from" and value is not None and _has_progress(config):
            continue  # not read again, and may be gone
        if isinstance(value, Path):
            changes[option] = resolve_model(value, option=option)
        elif isinstance(value, str) and (value in COMPILED_MODELS or value in read_catalog()):
            changes[option] = str(resolve_model(Path(value)))
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[type-var]


def _has_progress(config: Any) -> bool:
    from training.run_folder import has_progress

    return has_progress(config.out)
