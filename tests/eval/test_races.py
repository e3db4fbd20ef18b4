"""Tests of two evaluations that start at the same time in one folder."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from data.runtime.locks import locked_folder
from eval.results.folder import EvaluationFolder
from eval.results.runner import evaluate
from scripts.commands.verify import verify
from tests.eval.fake_engine import FakeEngine, toy_folder


@pytest.mark.parametrize("offset_s", [0.0, 0.002, 0.01, 0.03])
def test_two_evaluations_at_once_are_never_mixed(offset_s: float, tmp_path: Path) -> None:
    """Another sample each, as `sudocot eval run` begins them: all files are of one of the two."""
    out, refused = tmp_path / "e", []

    def work(num_puzzles: int, delay_s: float) -> None:
        time.sleep(delay_s)
        try:
            with locked_folder(out):
                evaluate(toy_folder(out, num_puzzles), FakeEngine(), part=None)
        except ValueError as error:
            refused.append(str(error))

    cases = ((3, 0.0), (5, offset_s))
    threads = [threading.Thread(target=work, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (message,) = refused
    assert re.search("another process is writing to it|differs in", message)
    folder = EvaluationFolder.open(out)
    assert folder.config.num_sampled in (3, 5)
    assert len(folder.sample) == len(folder.rows) == folder.config.num_sampled
    assert folder.generated(row.key for row in folder.rows).keys() == {r.key for r in folder.rows}
    assert verify(out) == ("evaluation", [])
