"""Fixtures shared by the tests of jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def fake_slurm(tmp_path: Path) -> str:
    """Search path with an srun that shows its command, and a scontrol for nodes on this host."""
    tools = tmp_path / "fake"
    tools.mkdir()
    (tmp_path / "launch of%it" / "done").mkdir(parents=True)
    nodes = """case "$1 $2" in
        requeue*) echo "REQUEUE $2" ;;
        *node) echo "NodeName=n1 NodeAddr=127.0.0.1 x" ;;
        *) echo n1 ;;
    esac"""
    programs = {
        "scontrol": nodes,
        "srun": 'echo "THREADS $OMP_NUM_THREADS SRUN $*"; exit ${CODE:-0}',
    }
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    return f"{tools}{os.pathsep}{os.environ['PATH']}"
