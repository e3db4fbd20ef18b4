"""Imports point one way, see `docs/architecture.md`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "solver": (),
    "data": ("solver",),
    "training": ("solver", "data"),
    "eval": ("solver", "data"),
    "compile_tm": ("solver.jit", "data.runtime", "data.model_format", "data.page"),
    "scripts": ("solver", "data", "training", "eval", "compile_tm", "sudocot_cli"),
}
"""Packages and modules that each package may import, besides itself."""
OURS = {*ALLOWED, "sudocot_cli", "tests"}


def imported_modules(source: str) -> Iterator[str]:
    """Yield the modules that a source imports, also inside of functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_those_below_it(package: str) -> None:
    allowed = (package, *ALLOWED[package])
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules
        for name in imported_modules(path.read_text(encoding="utf-8"))
        if name.split(".")[0] in OURS
        and not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)
    ]
    assert wrong == []


def test_every_form_of_import_is_found() -> None:
    source = "import a.b\ndef f():\n    from c.d import e\nif x:\n    import g as h\n"
    assert sorted(imported_modules(source)) == ["a.b", "c.d", "g"]
