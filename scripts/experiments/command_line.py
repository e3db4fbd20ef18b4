"""Conversion of a `TrainConfig` to a command line of `sudocot train run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from scripts.cli.config_file import option_words, tri_state_fields
from scripts.launch.recipe import TRAIN, Words
from training.config import TrainConfig, make_config


def train_command(config: TrainConfig) -> Words:
    """Return the command line that gives a configuration.

    It names the preset and the model, and lists the fields that differ from them.
    """
    return (
        *TRAIN,
        *("--preset", config.preset, "--model", config.model),
        *options(changed_fields(config)),
        *("--data", str(config.data), "--out", str(config.out)),
    )


def options(changes: Mapping[str, Any]) -> Words:
    """Return the options of `sudocot train run` that set some fields of the configuration."""
    tri_states = tri_state_fields(TrainConfig)
    return tuple(w for _, words in option_words(changes, tri_states=tri_states) for w in words)


def changed_fields(config: TrainConfig) -> dict[str, Any]:
    """Return the fields that differ from the preset and the model preset of a configuration.

    Returns:
        Values by name; those of nested configurations are mappings.
    """
    base = make_config(config.preset, data=config.data, out=config.out, model=config.model)
    return _differences(config, base)


def replace_fields(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return a dataclass with other values, in the form that `changed_fields` returns."""
    values = {
        name: replace_fields(getattr(config, name), value) if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **values)


def _differences(config: Any, base: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), getattr(base, field.name)
        if value != default:
            is_nested = dataclasses.is_dataclass(value)
            changes[field.name] = _differences(value, default) if is_nested else value
    return changes
