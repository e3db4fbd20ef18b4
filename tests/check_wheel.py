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


def main(packages: list[str]) -> None:
    """Import everything in the packages; an assertion names what is missing."""
    installation = Path(sysconfig.get_path("purelib"))
    num_modules = 0
    for package in packages:
        root = importlib.import_module(package)
        assert Path(root.__path__[0]) == installation / package, f"{package} came from elsewhere"
        assert (installation / package / "py.typed").is_file(), f"{package} lacks py.typed"
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            importlib.import_module(module.name)
            num_modules += 1
    print(f"{num_modules} modules import from the wheel")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
