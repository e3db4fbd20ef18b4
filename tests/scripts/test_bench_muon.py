"""Test of the benchmark of Muon steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from scripts.bench import muon


def test_has_a_row_per_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "muon.json"
    config = muon.Config(
        hidden_size=16, num_layers=1, num_heads=2, processes=(2,), repeats=2, out=out
    )
    assert muon.main(config) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["optimizer"] for row in rows] == ["Muon", "DistributedMuon"]
    assert rows[0]["ratio"] == 1
    assert all(row["ms/step"] > 0 for row in rows)


def test_digests_tell_weights_apart() -> None:
    config = muon.Config(hidden_size=16, num_layers=1, num_heads=2)
    optimizers = [torch.optim.Muon(muon.matrices(config)) for _ in range(2)]
    assert muon.digest(optimizers[0]) == muon.digest(optimizers[1])
    with torch.no_grad():
        optimizers[1].param_groups[0]["params"][0][0, 0] += 1
    assert muon.digest(optimizers[0]) != muon.digest(optimizers[1])
