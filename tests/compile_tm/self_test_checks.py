"""Checks of the self-test of a model folder, for all architectures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compile_tm.hf.self_test import SELF_TEST_FILE


def assert_words_that_cannot_be_run_are_problems(
    check: Callable[[Path], Any], folder: Path, copy: Path
) -> None:
    """Assert that a check reports wrong words, and runs the others.

    Args:
        check: `check_folder` or `check_stock_folder`.
        folder: Folder of a machine with the input alphabet 0, 1.
        copy: Folder to write.
    """
    shutil.copytree(folder, copy)
    path = copy / SELF_TEST_FILE
    parts = {"1": [1, 10**9], "0": [1], "z": [1, 2]}
    rows = [
        {"word": [symbol], "segments": [{"ids": ids, "prompt_length": 1}]}
        for symbol, ids in parts.items()
    ]
    stored: list[Any] = json.loads(path.read_text())
    for others in (stored[:0], stored):
        path.write_text(json.dumps([*rows, *others]))
        found = check(copy)
        assert list(map(str, found.problems)) == [
            "self-test, word '1': its tokens differ from the definition",
            "self-test, word '0': its tokens differ from the definition",
            "self-test, word 'z': word: symbol 'z' at index 0 is not in the input alphabet 0 1",
        ]
        assert found.num_words == len(others)
