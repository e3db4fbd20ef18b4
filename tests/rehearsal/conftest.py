"""Skips the rehearsal where scripts/gpu_rehearsal.sh did not prepare it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
STUB = "SUDOCOT_STUB_SM"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here, and skip them without the stub driver."""
    is_prepared = torch.version.cuda is not None and STUB in os.environ
    reason = pytest.mark.skip(reason="run scripts/gpu_rehearsal.sh, which preloads a stub driver")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.rehearsal)
            item.add_marker(pytest.mark.filterwarnings("default"))  # those of compiling
            if not is_prepared:
                item.add_marker(reason)
