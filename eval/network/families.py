"""Families of networks that transformers knows only once a module has been imported.

Nothing here imports such a module: commands enter its name, and a model's family asks for it.
"""

from __future__ import annotations

import importlib

COMPILED_FAMILY = "compiled_transformer"
"""Family of models that were compiled: nobody trained them, and reports do not rank them."""
FAMILY_MODULES: dict[str, str] = {}
"""Module that registers a family with the Auto classes of transformers, by `model_type`."""


def register_family(family: str) -> None:
    """Make a family known to transformers, if a module is named for it."""
    if family in FAMILY_MODULES:
        importlib.import_module(FAMILY_MODULES[family])
