"""Data sets and a run shared by the training tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.training.runs import run, small_config
from tests.training.toy import write_toy_data
from training.config import TrainConfig


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


@pytest.fixture(scope="session")
def finished(
    toy_data: Path, toy_held_out: Path, tmp_path_factory: pytest.TempPathFactory
) -> TrainConfig:
    """A finished run without interruptions."""
    config = small_config(toy_data, tmp_path_factory.mktemp("finished"), held_out=toy_held_out)
    assert run(config) == 0
    return config


@pytest.fixture
def config(finished: TrainConfig, tmp_path: Path) -> TrainConfig:
    """The same run in another folder, not started."""
    return dataclasses.replace(finished, out=tmp_path / "run")
