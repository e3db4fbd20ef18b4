"""Tests of W&B: optional import, failures, rebuilding from the metrics."""

from __future__ import annotations

import dataclasses
import importlib.abc
import json
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import wandb

from data.runtime.wandb_runs import choose_mode
from data.store import TokenStore
from data.text import text_to_tokens
from solver.puzzles import parse_puzzle
from tests.training.runs import at_update, final_digest, run, send, small_config
from tests.wandb_files import read_artifacts, read_history
from training.commands import wandb_sync as command
from training.config import TrainConfig
from training.reporting.metrics import MetricsLog, Row
from training.reporting.trackers import NUM_SAMPLES, SAMPLE_COLUMNS, log_results
from training.reporting.wandb_sync import merge_by_step


@pytest.fixture
def config(toy_data: Path, tmp_path: Path) -> TrainConfig:
    return small_config(toy_data, tmp_path / "run", budget=3_000)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """W&B writes its files here and sends nothing."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "wandb"))
    (tmp_path / "wandb").mkdir()
    return tmp_path / "wandb"


class _NoWandb(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == "wandb":
            raise AssertionError(f"{name} was imported")


class TestSwitch:
    """Off means off; on never ends a run."""

    def test_off_means_not_imported(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [_NoWandb(), *sys.meta_path])
        assert run(config) == 0
        with pytest.raises(AssertionError, match="wandb was imported"):
            import wandb  # noqa: F401  the hook itself works

    def test_a_failing_start_costs_a_warning(
        self,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(**_: Any) -> NoReturn:
            raise wandb.errors.CommError("no network")

        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setattr(wandb, "init", fail)
        assert run(dataclasses.replace(config, wandb=True)) == 0
        assert caplog.text.count("W&B failed and is disabled: no network") == 1

    def test_a_malformed_setting_costs_a_warning(
        self,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_BASE_URL", "https://host:port/")
        monkeypatch.delenv("WANDB_MODE", raising=False)
        assert run(dataclasses.replace(config, wandb=True)) == 0
        assert "W&B failed and is disabled: Port could not be cast" in caplog.text

    def test_it_does_not_change_the_run(self, config: TrainConfig, offline: Path) -> None:
        other = dataclasses.replace(config, out=config.out.with_name("other"), wandb=True)
        run(config)
        run(other)
        assert final_digest(config) == final_digest(other)
        history = read_history(offline)
        assert [row["_step"] for row in history] == [3, 6, 7]
        assert all(row["train/loss"] > 0 for row in history)
        table, data, model = read_artifacts(offline)
        (run_files,) = offline.rglob("files")
        samples = json.loads((run_files / history[-1]["samples.path"]).read_text())
        assert samples["columns"] == list(SAMPLE_COLUMNS)
        assert len(samples["data"]) == NUM_SAMPLES
        store = TokenStore.open(config.data)
        board, lines = samples["data"][0]
        assert text_to_tokens(store.board, lines).tolist() == store[0].tolist()
        givens = parse_puzzle(board, board=store.board)[1]
        assert 2 * np.count_nonzero(givens) + 2 == store.prompt_lengths[0]
        assert table.kind == "run_table"
        assert (data.kind, model.kind) == ("dataset", "model")
        assert data.metadata["digest"] == TokenStore.open(config.data).manifest.digest
        facts = json.loads((other.out / "final" / "sudocot.json").read_text())
        assert model.metadata["weights_digest"] == facts["weights_digest"]
        assert {"config.json", "model.safetensors", "README.md"} <= model.entries.keys()


class TestMode:
    """Online only where that can work."""

    @pytest.fixture(autouse=True)
    def no_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        names = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC")
        for name in (*names, "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))

    def test_without_a_key_it_is_offline(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        assert choose_mode() == "offline"
        assert "no API key" in caplog.text

    def test_without_a_network_it_is_offline(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        with socket.socket() as closed:  # bound and not listening: connections are refused
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
            assert choose_mode() == "offline"
        assert "cannot be reached" in caplog.text

    @pytest.mark.parametrize("source", ["environment", "netrc", "other netrc"])
    def test_with_both_it_is_online(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
    ) -> None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
            if source == "environment":
                monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
            else:
                netrc = tmp_path / ("keys" if source == "other netrc" else ".netrc")
                netrc.write_text("machine 127.0.0.1 login user password kkkk\n")
                netrc.chmod(0o644)  # W&B reads it, whoever else may
                if source == "other netrc":
                    monkeypatch.setenv("NETRC", str(netrc))
            assert choose_mode() == "online"

    def test_behind_a_proxy_the_proxy_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.getsockname()[1]}")
            monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.invalid")
            monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
            assert choose_mode() == "online"

    def test_the_user_has_the_last_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_MODE", "disabled")
        assert choose_mode() is None


class TestSync:
    """One clean run from the record of several sessions."""

    def test_a_requeued_run_becomes_one_with_rising_steps(
        self, config: TrainConfig, offline: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = dataclasses.replace(config, log_every=1)
        with at_update(monkeypatch, 3, send(signal.SIGTERM)):
            run(config)
        with MetricsLog(config.out / "metrics.jsonl") as log:  # steps that were lost again
            log.write("train", step=5, num_tokens=1, loss=77.0)
            log.write("train", step=6, num_tokens=1, loss=77.0)
        run(config)
        assert command.main(command.Config(run=config.out)) == 0
        history = read_history(offline)
        assert [row["_step"] for row in history] == list(range(1, 8))
        assert all(row["train/loss"] < 77 for row in history)
        kinds = [artifact.kind for artifact in read_artifacts(offline)]
        assert kinds == ["run_table", "dataset", "model"]

    def test_a_data_set_rebuilt_since_is_not_logged(
        self, toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log_results(None, model=tmp_path, data=toy_data, data_digest="0123")
        assert f"{toy_data}: not logged: got digest " in caplog.text
        assert caplog.text.endswith("the run was trained on 0123\n")

    def test_rows_of_a_step_are_merged(self) -> None:
        rows: list[Row] = [
            {"schema": 1, "kind": "start", "step": 0, "num_threads": 2},
            {"schema": 1, "kind": "eval", "step": 5, "loss": 2.0},
            {"schema": 1, "kind": "train", "step": 4, "loss": 3.0, "device": "cpu"},
            {"schema": 1, "kind": "train", "step": 5, "loss": 1.0},
        ]
        assert merge_by_step(rows) == [
            (4, {"train/loss": 3.0}),
            (5, {"eval/loss": 2.0, "train/loss": 1.0}),
        ]

    def test_another_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            command.main(command.Config(run=tmp_path))
