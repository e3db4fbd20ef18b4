"""Tests of the warnings and advice at the start of a run."""

from __future__ import annotations

import logging
import platform
from pathlib import Path

import pytest
import torch

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

    with monkeypatch.context() as patch, folder.locked():
        if killed_at == "config.json":
            patch.setattr("training.run_folder.publish_file", killed_write)
        else:
            patch.setattr(Path, "mkdir", killed_mkdir)
        with pytest.raises(KilledError):
            folder.prepare(config, data_digest="0")
    folder.check(config, data_digest="0")
    with folder.locked():
        folder.prepare(config, data_digest="0")
    assert {path.name for path in config.out.glob("[!.]*")} == {"config.json", "checkpoints"}
