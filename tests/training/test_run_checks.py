"""Tests of the warnings and advice at the start of a run."""

from __future__ import annotations

import logging
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from data.runtime.locks import locked_folder
from tests.training.runs import KilledError, small_config
from training import run_checks
from training.run_folder import RunFolder


class TestHugePages:
    """The line about huge pages."""

    @pytest.mark.parametrize(
        ("change", "is_told"),
        [
            ({}, True),
            ({"device": "cuda"}, False),
            ({"libc": ("glibc", "2.34")}, False),
            ({"libc": ("glibc", "2.9")}, False),
            ({"libc": ("", "")}, False),
            ({"tunables": "glibc.malloc.check=1"}, True),
            ({"tunables": "glibc.malloc.check=1:glibc.malloc.hugetlb=1"}, False),
            ({"mode": "[always] madvise never"}, False),
            ({"mode": "always madvise [never]"}, False),
            ({"mode": None}, False),
        ],
    )
    def test_huge_pages_are_advised_only_where_they_help(
        self,
        change: dict[str, str | tuple[str, str] | None],
        is_told: bool,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        case = {
            "device": "cpu",
            "libc": ("glibc", "2.36"),
            "tunables": "",
            "mode": "always [madvise] never",
        } | change
        mode = tmp_path / "enabled"
        if case["mode"] is not None:
            mode.write_text(f"{case['mode']}\n")
        monkeypatch.setattr(run_checks, "_HUGE_PAGES_MODE", mode)
        monkeypatch.setattr(platform, "libc_ver", lambda: case["libc"])
        monkeypatch.setenv("GLIBC_TUNABLES", str(case["tunables"]))
        caplog.set_level(logging.INFO)
        run_checks.advise_huge_pages(torch.device(str(case["device"])))
        assert ("GLIBC_TUNABLES=glibc.malloc.hugetlb=1" in caplog.text) == is_told


@pytest.mark.parametrize(
    ("num_processes", "longest", "told"),
    [
        (4, 100, ""),
        (
            8,
            100,
            "8 processes share 4 micro-batches per update: set max_tokens_per_micro_batch to ",
        ),
        (8, 100, " to 100 to 500"),
        (8, 501, "the longest sequence has 501 tokens, so set tokens_per_update to 4008 or more"),
    ],
)
def test_advice_for_idle_processes_is_allowed_by_the_sampler(
    num_processes: int, longest: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = SimpleNamespace(tokens_per_update=4_000, micro_tokens=1_000)
    sampler: Any = SimpleNamespace(config=config, longest=longest)
    run_checks.warn_about_idle_processes(sampler, num_processes=num_processes)
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)


@pytest.mark.parametrize("killed_at", ["config.json", "checkpoints"])
def test_a_run_that_is_killed_while_it_begins_can_be_begun_again(
    killed_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path / "data", tmp_path / "run")
    folder = RunFolder(config.out)

    def killed_write(path: Path, content: bytes) -> None:
        path.with_name(f".{path.name}.host.1.tmp").write_bytes(content[:5])
        raise KilledError

    def killed_mkdir(path: Path, *_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, locked_folder(folder.path):
        if killed_at == "config.json":
            patch.setattr("training.run_folder.publish_file", killed_write)
        else:
            patch.setattr(Path, "mkdir", killed_mkdir)
        with pytest.raises(KilledError):
            folder.prepare(config, data_digest="0")
    folder.check(config, data_digest="0")
    with locked_folder(folder.path):
        folder.prepare(config, data_digest="0")
    assert {path.name for path in config.out.glob("[!.]*")} == {"config.json", "checkpoints"}
