"""Tests of `sudocot train export`: model folders of checkpoints."""

from __future__ import annotations

import dataclasses
import logging
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from data.model_format.facts import check_model_folder, read_facts
from data.model_format.weights import weights_digest
from data.runtime.signals import REQUEUE_EXIT_CODE
from tests.training.runs import at_update, run, send, small_config
from training.checkpoints.outputs import export_checkpoint
from training.commands.export import Config, main
from training.config import TrainConfig
from training.models.board_state import without_head


@pytest.fixture
def unfinished(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """A run stopped after five updates, with checkpoints of steps 4 and 5."""
    with at_update(monkeypatch, 5, send(signal.SIGTERM)):
        assert run(config) == REQUEUE_EXIT_CODE
    return config


def stored_weights(run_folder: Path, step: int) -> str:
    """Digest of the weights of a checkpoint."""
    path = run_folder / "checkpoints" / f"step-{step:09d}" / "model.safetensors"
    return weights_digest(without_head(load_file(path)))


# With their output blocks, the rows have 68 tokens or more.
@pytest.mark.parametrize(
    "changes",
    [{}, {"output_share": 0.0, "max_cot_length": 70, "max_tokens_per_micro_batch": 60}],
    ids=str,
)
def test_the_last_checkpoint_of_a_run_is_its_model(
    changes: dict[str, Any], toy_data: Path, tmp_path: Path
) -> None:
    config = small_config(toy_data, tmp_path / "run", budget=2_000, **changes)
    optimizer = dataclasses.replace(config.optimizer, average_share=0.0)
    run(dataclasses.replace(config, optimizer=optimizer))
    export_checkpoint(config.out, tmp_path / "model")
    for file in (config.out / "final").iterdir():
        assert (tmp_path / "model" / file.name).read_bytes() == file.read_bytes()


def test_checkpoints_of_an_unfinished_run(
    unfinished: TrainConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert main(Config(run=unfinished.out, target=tmp_path / "newest")) == 0
    assert caplog.messages[-1] == f"{tmp_path / 'newest'}: the model after step 5"
    assert main(Config(run=unfinished.out, target=tmp_path / "older", step=4)) == 0
    for name, step in (("newest", 5), ("older", 4)):
        exported = load_file(tmp_path / name / "model.safetensors")
        assert weights_digest(exported) == stored_weights(unfinished.out, step)
        assert read_facts(tmp_path / name).training["step"] == step


def test_a_run_starts_from_an_exported_checkpoint(unfinished: TrainConfig, tmp_path: Path) -> None:
    model = tmp_path / "model"
    export_checkpoint(unfinished.out, model)
    second = dataclasses.replace(unfinished, out=tmp_path / "second", init_from=model, budget=500)
    assert run(second) == 0


def test_errors_name_the_fault(unfinished: TrainConfig, tmp_path: Path) -> None:
    out, target = unfinished.out, tmp_path / "model"
    with pytest.raises(FileNotFoundError, match="not finished; `sudocot train export"):
        check_model_folder(out)
    with pytest.raises(ValueError, match=r"step: got 3, .* has checkpoints of 4, 5"):
        export_checkpoint(out, target, step=3)
    (out / "checkpoints" / "step-000000005" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"step-000000005: model\.safetensors is damaged"):
        export_checkpoint(out, target, step=5)
    assert export_checkpoint(out, target) == 4  # the newest undamaged one
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        export_checkpoint(tmp_path, target)
    with pytest.raises(FileExistsError):
        export_checkpoint(out, target)


@pytest.mark.parametrize("name", ["final", "checkpoints/step-000000009", "../run/other"])
def test_a_target_inside_the_run_is_refused(
    name: str, unfinished: TrainConfig, tmp_path: Path
) -> None:
    """A folder `final` would mark the run as finished, and checkpoints are pruned."""
    link = tmp_path / "link"
    link.symlink_to(unfinished.out)
    for run_folder, target in ((unfinished.out, link / name), (link, unfinished.out / name)):
        with pytest.raises(
            ValueError, match=r"target: got .*, allowed is a folder outside the run"
        ):
            export_checkpoint(run_folder, target)
    assert not (unfinished.out / name).exists()


def test_another_data_set_in_the_place_of_the_first(
    unfinished: TrainConfig, toy_segments: Path, tmp_path: Path
) -> None:
    """The facts of the model are those of its training data."""
    config = unfinished.out / "config.json"
    config.write_text(config.read_text().replace(str(unfinished.data), str(toy_segments)))
    with pytest.raises(ValueError, match="data: the checkpoint has digest"):
        export_checkpoint(unfinished.out, tmp_path / "model")


def test_a_run_without_a_checkpoint(unfinished: TrainConfig, tmp_path: Path) -> None:
    for path in (unfinished.out / "checkpoints").iterdir():
        path.rename(tmp_path / path.name)
    with pytest.raises(ValueError, match="the run has no checkpoint"):
        export_checkpoint(unfinished.out, tmp_path / "model")
