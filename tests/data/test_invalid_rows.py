"""Tests of the warnings of invalid rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cli.main import main


@pytest.mark.parametrize(
    ("words", "consequence"),
    [
        (("build", "{list}", "--mode", "cot", "--out", "{folder}/out"), "skipped"),
        (("lengths", "{list}", "--out", "{folder}/out.parquet"), "no length"),
        (("check-splits", "{list}", "{list}"), "skipped"),
    ],
)
def test_the_first_twenty_invalid_rows_are_listed(
    words: tuple[str, ...],
    consequence: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    puzzle = "1" + "." * 15
    path = tmp_path / "list.txt"
    path.write_text("\n".join([puzzle, *(["12"] * 30)]))
    main(["data", *(word.format(list=path, folder=tmp_path) for word in words)])
    num_reads = words.count("{list}")
    assert caplog.text.count(f"{consequence}: {path}:") == 20 * num_reads
    assert caplog.text.count("further invalid rows are counted but not listed") == num_reads
