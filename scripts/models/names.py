"""Options that name a model: a folder, or the name of one that this project has."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from scripts.models.catalog import read_catalog, trained_model_folder
from scripts.models.compiled import COMPILED_MODELS, compiled_model_folder

MODEL_OPTIONS = ("model", "init_from")
"""Fields of command configs that take a model folder."""

ConfigT = TypeVar("ConfigT")


def resolve_model(model: Path) -> Path:
    """Folder of a model; a folder of that name comes before a named model.

    Raises:
        FileNotFoundError: This installation lacks the files of a named model.
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
    names = ", ".join([*catalog, *COMPILED_MODELS])
    raise ValueError(f"model: got {name!r}, allowed are a model folder and the names {names}")


def with_model_folders(config: ConfigT) -> ConfigT:
    """Replace names of models in the config of a command by their folders.

    An option that is a text may also name what only its command knows, such as a preset or a model
    of a server: unknown texts stay as they are.

    Raises:
        FileNotFoundError: This installation lacks the files of a named model.
        ValueError: There is neither a folder nor a model of a name.
    """
    changes: dict[str, Any] = {}
    for option in MODEL_OPTIONS:
        value = getattr(config, option, None)
        if isinstance(value, Path):
            changes[option] = resolve_model(value)
        elif isinstance(value, str) and (value in COMPILED_MODELS or value in read_catalog()):
            changes[option] = str(resolve_model(Path(value)))
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[type-var]
