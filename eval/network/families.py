"""Model families that must be registered with transformers by importing a module.

Commands add the names of these modules to `FAMILY_MODULES`; they are imported on demand.
"""

from __future__ import annotations

import importlib

COMPILED_FAMILY = "compiled_transformer"
"""Family of compiled models, which reports show as references without a rank."""
FAMILY_MODULES: dict[str, str] = {}
"""Maps a `model_type` to the module that registers it with the Auto classes of transformers."""


def register_family(family: str) -> None:
    """Import the module of a family, if there is one in `FAMILY_MODULES`."""
    if family in FAMILY_MODULES:
        importlib.import_module(FAMILY_MODULES[family])
