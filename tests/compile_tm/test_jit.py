"""Tests of the cache of compiled kernels."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from compile_tm import jit
from solver.jit import IS_JIT


@pytest.mark.skipif(not IS_JIT, reason="kernels are not compiled")
def test_a_change_of_any_module_gives_another_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kernels contain constants of modules without kernels."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "constants.py").write_text("WORD = 64\n")
    (package / "kernels.py").write_text("@kernel\ndef f():\n    return WORD\n")
    monkeypatch.setattr(jit, "__file__", str(package / "jit.py"))
    monkeypatch.setenv("SUDOCOT_CACHE_DIR", str(tmp_path / "cache"))
    first = jit.kernel_cache_dir.__wrapped__()
    assert jit.kernel_cache_dir.__wrapped__() == first
    (package / "constants.py").write_text("WORD = 32\n")
    assert jit.kernel_cache_dir.__wrapped__() not in (None, first)


@pytest.mark.skipif(not IS_JIT, reason="kernels are not compiled")
def test_without_a_writable_home_kernels_are_cached_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("SUDOCOT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = jit.kernel_cache_dir.__wrapped__()
    assert folder is not None
    assert folder.parent == tmp_path / f"sudocot-{os.getuid()}"


def test_without_numba_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.jit.IS_JIT", False)
    monkeypatch.delattr("solver.jit.numba", raising=False)
    assert jit.kernel_cache_dir.__wrapped__() is None
