"""Entry point of the `sudocot` command and of `python -m sudocot_cli`.

The packages of this distribution have common names, such as `data`. A user's package of the same
name, on PYTHONPATH or in the working folder of `python -m`, is reported before anything is imported
from it. The name of this module is unlikely to be shadowed itself.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("solver", "data", "training", "eval", "compile_tm", "scripts")
BAD_INPUT = 2


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
    shadow = find_shadow()
    if shadow is None:
        from scripts.cli.main import run as run_command

        run_command()
    else:
        if sys.stderr is not None:  # closed by the caller
            sys.stderr.write(f"sudocot: error: {shadow}\n")
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    run()
