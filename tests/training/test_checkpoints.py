"""Tests of checkpoints: atomic, and the newest undamaged one is loaded."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from training.batching.usage import Usage
from training.checkpoints.checkpoint import (
    MARKER,
    Checkpoint,
    find_fault,
    load_newest,
    save_checkpoint,
)
from training.checkpoints.state import gather_state, restore_state
from training.models.build import build_model
from training.models.families import ModelConfig
from training.optimizers import build_optimizer
from training.schedule import OptimizerConfig

SHAPE = ModelConfig(board="4x4", hidden_size=16, num_layers=1, num_heads=2)


def make_checkpoint(step: int, *, shape: ModelConfig = SHAPE) -> Checkpoint:
    """State of a model after one update, as if it were that of a step."""
    model = build_model(shape, seed=step)
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
    model(input_ids=torch.arange(6)[None]).logits.square().mean().backward()
    optimizer.step()
    seen = np.zeros(21, np.bool_)
    seen[step % 21] = True
    usage = Usage(puzzles_seen=seen, step=step, position=7 * step, logged_loss_sum=0.1 * step)
    return Checkpoint(
        state=gather_state(model, optimizer),
        usage=usage,
        data_digest="d" * 64,
        config={"seed": step},
    )


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


def newest_step(folder: Path) -> int | None:
    checkpoint = load_newest(folder)
    return None if checkpoint is None else checkpoint.usage.step


def test_everything_comes_back(tmp_path: Path) -> None:
    saved = make_checkpoint(5)
    save_checkpoint(tmp_path, saved)
    loaded = load_newest(tmp_path)
    assert loaded is not None
    assert loaded.usage.counts() == saved.usage.counts()
    assert loaded.usage.logged_loss_sum == saved.usage.logged_loss_sum
    assert np.array_equal(loaded.usage.puzzles_seen, saved.usage.puzzles_seen)
    assert (loaded.data_digest, loaded.config) == (saved.data_digest, saved.config)
    for name, tensor in saved.state.model.items():
        assert torch.equal(loaded.state.model[name], tensor)
    for name, moments in saved.state.optimizer["state"].items():
        for kind, tensor in moments.items():
            assert torch.equal(loaded.state.optimizer["state"][name][kind], tensor)
    assert torch.equal(loaded.state.random[0]["torch"], saved.state.random[0]["torch"])


def test_the_state_goes_back_into_model_and_optimizer(tmp_path: Path) -> None:
    """Another model takes the state and makes the same next step, random numbers included."""
    save_checkpoint(tmp_path, make_checkpoint(5))
    results = []
    for seed in (1, 2):
        loaded = load_newest(tmp_path)
        assert loaded is not None
        model = build_model(SHAPE, seed=seed)
        optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
        restore_state(model, optimizer, loaded.state)
        ids = torch.randint(28, (2, 9))
        model(input_ids=ids).logits.square().mean().backward()
        optimizer.step()
        results.append([parameter.detach() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_tied_matrices_are_saved(tmp_path: Path) -> None:
    tied = ModelConfig(board="4x4", hidden_size=16, num_layers=1, num_heads=2, tie_embeddings=True)
    save_checkpoint(tmp_path, make_checkpoint(1, shape=tied))
    assert newest_step(tmp_path) == 1


def test_two_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 100, 1_000_000_000):
        save_checkpoint(tmp_path, make_checkpoint(step))
    assert steps_in(tmp_path) == [100, 1_000_000_000]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("drop the marker", "incomplete"),
        ("garble the marker", "complete.json is damaged"),
        ("cut a file", "optimizer.pt is damaged"),
        ("flip a bit", "model.safetensors is damaged"),
        ("drop a file", "puzzles_seen.npy is missing"),
    ],
)
def test_a_broken_newest_is_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, fault: str
) -> None:
    save_checkpoint(tmp_path, make_checkpoint(1))
    broken = save_checkpoint(tmp_path, make_checkpoint(2))
    if damage == "drop the marker":
        (broken / MARKER).unlink()
    elif damage == "garble the marker":
        (broken / MARKER).write_text("{")
    elif damage == "cut a file":
        file = broken / "optimizer.pt"
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "flip a bit":
        file = broken / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    else:
        (broken / "puzzles_seen.npy").unlink()
    assert newest_step(tmp_path) == 1
    assert str(broken) in caplog.text
    assert fault in caplog.text

    # The run goes on from step 1; its next checkpoints take the place of the broken one.
    save_checkpoint(tmp_path, make_checkpoint(2))
    assert find_fault(broken) is None
    assert steps_in(tmp_path) == [1, 2]


def test_what_lies_ahead_is_removed(tmp_path: Path) -> None:
    """A broken checkpoint at a step that is not saved again must not stay for ever."""
    save_checkpoint(tmp_path, make_checkpoint(1))
    (save_checkpoint(tmp_path, make_checkpoint(5)) / MARKER).unlink()
    save_checkpoint(tmp_path, make_checkpoint(3))
    assert steps_in(tmp_path) == [1, 3]


def test_leftovers_of_a_killed_save_are_removed(tmp_path: Path) -> None:
    leftover = tmp_path / ".step-000000007.4242.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").touch()
    assert load_newest(tmp_path) is None
    save_checkpoint(tmp_path, make_checkpoint(8))
    assert steps_in(tmp_path) == [8]


@contextlib.contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let the system refuse to write beyond a size, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.5, 1.0])  # of the weights: they fit, the optimizer does not
def test_full_disk_is_named_and_costs_nothing(tmp_path: Path, share: float) -> None:
    saved = save_checkpoint(tmp_path, make_checkpoint(1))
    limit = int(share * (saved / "model.safetensors").stat().st_size)
    with largest_file(limit), pytest.raises(OSError, match="step-000000002: cannot be written"):
        save_checkpoint(tmp_path, make_checkpoint(2))
    assert steps_in(tmp_path) == [1]
    assert newest_step(tmp_path) == 1


def test_what_cannot_be_removed_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """NFS keeps a file that someone has open, under another name in the same folder."""
    for step in (1, 2):
        save_checkpoint(tmp_path, make_checkpoint(step))

    def busy(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", busy)
        save_checkpoint(tmp_path, make_checkpoint(3))
    assert "step-000000001 is superseded and cannot be removed" in caplog.text
    assert newest_step(tmp_path) == 3
    save_checkpoint(tmp_path, make_checkpoint(4))
    assert steps_in(tmp_path) == [3, 4]


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, make_checkpoint(1))
    facts = json.loads((path / "facts.json").read_text())
    (path / "facts.json").write_text(json.dumps(facts | {"schema": 99}))
    marker = json.loads((path / MARKER).read_text())
    content = (path / "facts.json").read_bytes()
    marker["files"]["facts.json"] = {
        "num_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (path / MARKER).write_text(json.dumps(marker))
    with pytest.raises(ValueError, match="schema: got 99, allowed is 1"):
        load_newest(tmp_path)
