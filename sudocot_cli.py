"""Entry point of the `sudocot` command and of `python -m sudocot_cli`.

The packages of this distribution have common names, such as `data`. A user's package of the same
name, on PYTHONPATH or in the working folder of `python -m`, is reported before anything is imported
from it. The name of this module is unlikely to be shadowed itself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NoReturn

PACKAGES = ("solver", "data", "training", "eval", "compile_tm", "scripts")
BAD_INPUT, INTERRUPTED = 2, 130


def find_shadow() -> str | None:
    """Return a message if another file shadows a package of this distribution, else None."""
    root = Path(__file__).resolve().parent
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        found = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
        if found and not Path(found).resolve().is_relative_to(root / package):
            return (
                f"{found} shadows the package {package} of sudocot in {root}: "
                "run from another folder, or remove it from PYTHONPATH"
            )
    return None


def find_imported_shadow(error: BaseException) -> str | None:
    """Return a message if an imported module shadows a library, else None.

    Such a module is in a folder before the standard library on the search path, that is, on
    PYTHONPATH or in the working folder of `python -m`. Most are harmless, so this is called after
    an error only. A module whose import failed is found in the traceback.
    """
    modules = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        modules[frame.f_globals.get("__name__", "")] = frame.f_globals.get("__file__")
    standard = Path(os.__file__).parent
    entries = [Path(entry).resolve() for entry in sys.path]
    num_before = entries.index(standard.resolve()) if standard.resolve() in entries else 0
    for name, file in sorted(modules.items()):
        if "." in name or name in PACKAGES or not file:
            continue
        path = Path(file).resolve()
        folder = path.parents[1] if path.stem == "__init__" else path.parent
        if folder not in entries[:num_before]:
            continue
        if name in sys.stdlib_module_names:
            return f"{file} shadows the module {name} of Python: remove it from PYTHONPATH"
        later = [entry for entry in sys.path if Path(entry).resolve() != folder]
        spec = PathFinder.find_spec(name, later)
        if spec is not None and spec.origin is not None:
            return f"{file} shadows the library {name} in {spec.origin}: remove it from PYTHONPATH"
    return None


def run() -> None:
    """Run the command line, or exit with code 2 if a package is shadowed."""
    try:
        shadow = find_shadow()
        if shadow is None:
            from scripts.cli.main import run as run_command
    except KeyboardInterrupt:
        _exit(INTERRUPTED, "interrupted: nothing was written")
    if shadow is not None:
        _exit(BAD_INPUT, f"error: {shadow}")
    try:
        run_command()
    except Exception as error:
        shadow = find_imported_shadow(error)
        if shadow is None:
            raise
        _exit(BAD_INPUT, f"error: {shadow}")


def _exit(code: int, message: str) -> NoReturn:
    if sys.stderr is not None:  # closed by the caller
        sys.stderr.write(f"sudocot: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    run()
