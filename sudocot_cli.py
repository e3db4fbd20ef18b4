"""Entry point of the `sudocot` command and of `python -m sudocot_cli`.

The packages of this distribution have common names, such as `data`. A user's package of the same
name, on PYTHONPATH or in the working folder of `python -m`, is reported before anything is imported
from it. The name of this module is unlikely to be shadowed itself.
"""

from __future__ import annotations

import importlib.util
import sys
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
    run_command()


def _exit(code: int, message: str) -> NoReturn:
    if sys.stderr is not None:  # closed by the caller
        sys.stderr.write(f"sudocot: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    run()
