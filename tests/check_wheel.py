"""Check an installed wheel: every module imports from the installation, every package is typed.

`scripts/test.sh` runs it from a folder outside the source tree:

    python -I check_wheel.py PACKAGE ...
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import sysconfig
from pathlib import Path

HARNESSES = {
    "eval.harnesses.inspect_task": "inspect_ai",
    "eval.harnesses.reasoning_gym_data": "reasoning_gym",
}
"""Modules that need a library which no test environment has, and its name."""


def main(packages: list[str]) -> None:
    """Import the packages and modules (`NAME.py`); an assertion names what is missing."""
    installation = Path(sysconfig.get_path("purelib"))
    num_modules = 0
    for package in packages:
        root = importlib.import_module(package.removesuffix(".py"))
        if package.endswith(".py"):
            assert root.__file__ == str(installation / package), f"{package} came from elsewhere"
            num_modules += 1
            continue
        assert Path(root.__path__[0]) == installation / package, f"{package} came from elsewhere"
        assert (installation / package / "py.typed").is_file(), f"{package} lacks py.typed"
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != HARNESSES.get(module.name):
                    raise
                continue
            num_modules += 1
    print(f"{num_modules} modules import from the wheel")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
