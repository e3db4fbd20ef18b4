"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder with golden records and public puzzle lists; tests that need it skip without it."""
    default = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("SUDOCOT_SHARED", default))
    if not folder.is_dir():
        pytest.skip("no shared folder: set SUDOCOT_SHARED")
    return folder
