"""Data sets shared by the training tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.toy import write_toy_data


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CoT data set of 60 puzzles, about 69 tokens each."""
    folder = tmp_path_factory.mktemp("toy") / "cot"
    write_toy_data(folder)
    return folder


@pytest.fixture(scope="session")
def toy_segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SCoT data set of 60 puzzles, one to three segments each."""
    folder = tmp_path_factory.mktemp("toy") / "scot"
    write_toy_data(folder, segment_tokens=20)
    return folder


@pytest.fixture(scope="session")
def toy_held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CoT data set of 20 other puzzles."""
    folder = tmp_path_factory.mktemp("toy") / "held_out"
    write_toy_data(folder, num_puzzles=20, seed=1)
    return folder
