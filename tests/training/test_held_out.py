"""Tests of the schedule of evaluations during training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import training.held_out
from training.held_out import HeldOutEvaluations


class Session:
    """A run whose time passes as told."""

    def __init__(self, *, is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.next_s = 0.0
        config = SimpleNamespace(compile=is_compiled, max_eval_share=0.1, eval_every=1)
        run: Any = SimpleNamespace(
            config=config,
            held_out=object(),
            usage=SimpleNamespace(step=1),
            model=None,
            accelerator=SimpleNamespace(is_main_process=True),
        )
        clock = SimpleNamespace(perf_counter=lambda: self.now_s)
        monkeypatch.setattr(training.held_out, "time", clock)
        monkeypatch.setattr(training.held_out, "any_process", lambda flag, _accelerator: flag)
        monkeypatch.setattr(training.held_out, "evaluate", self._evaluate)
        records: Any = SimpleNamespace(evaluation=lambda *_, **__: None)
        self.evaluations = HeldOutEvaluations(run, records=records, stop=cast("Any", None))

    def _evaluate(self, *_: Any, **__: Any) -> str:
        self.now_s += self.next_s
        return "result"

    def train_then_evaluate_if_due(self, duration_s: float) -> bool:
        self.now_s += 5
        self.next_s = duration_s
        return self.evaluations.is_due() and self.evaluations.evaluate()


@pytest.mark.parametrize(
    ("is_compiled", "expected"),
    [(True, [True, True, True, False]), (False, [True, False, False, False])],
)
def test_an_evaluation_that_compiles_does_not_put_off_the_next(
    is_compiled: bool, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(is_compiled=is_compiled, monkeypatch=monkeypatch)
    assert [session.train_then_evaluate_if_due(s) for s in (60, 2, 5, 5)] == expected
