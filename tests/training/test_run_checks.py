"""Advice at the start of a run."""

from __future__ import annotations

import logging
import platform
from pathlib import Path

import pytest
import torch

from training import run_checks


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
    def test_is_told_where_it_helps_alone(
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
