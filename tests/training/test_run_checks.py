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
from tests.training.runs import KilledError, run, small_config
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
            ({"preload": "/usr/lib/libjemalloc.so.2"}, False),
            ({"preload": "/usr/lib/libfaketime.so.1"}, True),
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
            "preload": "",
            "mode": "always [madvise] never",
        } | change
        mode = tmp_path / "enabled"
        if case["mode"] is not None:
            mode.write_text(f"{case['mode']}\n")
        monkeypatch.setattr(run_checks, "_HUGE_PAGES_MODE", mode)
        monkeypatch.setattr(platform, "libc_ver", lambda: case["libc"])
        monkeypatch.setenv("GLIBC_TUNABLES", str(case["tunables"]))
        monkeypatch.setenv("LD_PRELOAD", str(case["preload"]))
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
        (8, 100, "max_tokens_per_micro_batch to 531"),
        (8, 532, "the longest sequence has 532 tokens, so set tokens_per_update to 4256 or more"),
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


def test_values_that_differ_between_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"seed": 1, "budget": 5, "model": "a"}
    processes = [values, values, values | {"budget": 6, "model": "b"}, values | {"budget": 7}]
    monkeypatch.setattr(run_checks, "gather_object", lambda own: own * 4)
    run_checks.check_processes_agree(values)
    monkeypatch.setattr(run_checks, "gather_object", lambda _: processes)
    with pytest.raises(ValueError) as caught:
        run_checks.check_processes_agree(values)
    assert str(caught.value) == (
        "budget: got 5 in process 0 and 6 in process 2; model: got 'a' in process 0 and 'b' in "
        "process 2; allowed is the same value in all processes"
    )


@pytest.mark.parametrize("name", ["seed", "optimizer.peak_lr", "data", "out", "step", "position"])
def test_a_run_whose_processes_differ_does_not_start(
    name: str, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(own: list[dict[str, object]]) -> list[dict[str, object]]:
        other = {key: "other" if key == name else value for key, value in own[0].items()}
        return [*own, other]

    monkeypatch.setattr(run_checks, "gather_object", gather)
    config = small_config(toy_data, tmp_path / "run")
    with pytest.raises(ValueError, match=rf"^{name}: got .* in process 0 and 'other' in process 1"):
        run(config)
    assert not (config.out / "config.json").exists()


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
