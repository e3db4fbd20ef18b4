"""W&B is a mirror: not imported when off, never fatal, and rebuilt from the record."""

from __future__ import annotations

import dataclasses
import importlib.abc
import json
import logging
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from tests.training.runs import at_update, final_digest, run, send, small_config
from training.commands import wandb_sync as command
from training.config import TrainConfig
from training.metrics import MetricsLog, Row
from training.trackers import choose_mode
from training.wandb_sync import merge_by_step


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


def written_history(folder: Path) -> list[dict[str, Any]]:
    """History of the one offline run in a folder: W&B's own file, a leveldb log of messages."""
    wandb.teardown()  # its own process may still be writing
    (file,) = folder.rglob("*.wandb")
    rows = []
    for payload in _log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(payload)
        if record.HasField("history"):
            items = record.history.item
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}
            rows.append(row)
    return rows


def _log_records(content: bytes) -> Iterator[bytes]:
    """Records of a leveldb log: a header of 7 bytes, then chunks (crc, length, type, data)."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        if 32_768 - position % 32_768 < 7:  # rest of a block
            position += 32_768 - position % 32_768
            continue
        _crc, length, kind = struct.unpack_from("<IHB", content, position)
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last chunk of one
            yield parts
            parts = b""


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
        assert caplog.text.count("W&B failed, the run goes on without it: no network") == 1

    def test_it_does_not_change_the_run(self, config: TrainConfig, offline: Path) -> None:
        other = dataclasses.replace(config, out=config.out.with_name("other"), wandb=True)
        run(config)
        run(other)
        assert final_digest(config) == final_digest(other)
        history = written_history(offline)
        assert [row["_step"] for row in history] == [3, 6, 7]
        assert all(row["train/loss"] > 0 for row in history)


class TestMode:
    """Online only where that can work."""

    @pytest.fixture(autouse=True)
    def no_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))

    def test_without_a_key_it_is_offline(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        assert choose_mode() == "offline"
        assert "no key" in caplog.text

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

    @pytest.mark.parametrize("source", ["environment", "netrc"])
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
                netrc = tmp_path / ".netrc"
                netrc.write_text("machine 127.0.0.1 login user password kkkk\n")
                netrc.chmod(0o600)
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
            log.write("train", step=5, loss=77.0)
            log.write("train", step=6, loss=77.0)
        run(config)
        assert command.main(command.Config(run=config.out)) == 0
        history = written_history(offline)
        assert [row["_step"] for row in history] == list(range(1, 8))
        assert all(row["train/loss"] < 77 for row in history)

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
