"""Non-finite values, gradients and updates of trainings."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

import training.loop
import training.run
from data.store import TokenStore
from tests.training.batch_sizes import size_of
from tests.training.runs import (
    lasting_rows,
    run,
)
from training.batching.batches import collate
from training.batching.sampler import make_sampler
from training.commands import run as run_command
from training.config import TrainConfig
from training.gradients import accumulate_gradients
from training.models.attention import ATTENTIONS, use_attention
from training.models.build import build_model
from training.optimizers import JointOptimizer
from training.solve_rate import MatchResult, held_out_match


class TestNonFinite:
    """A loss or gradient that is no number."""

    def test_stops_before_the_update(
        self,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A loss that is not a number at update 6: the command says where, and resumes after 4."""
        calls = 0

        def broken(*args: Any, **options: Any) -> torch.Tensor:
            nonlocal calls
            calls += 1
            loss = accumulate_gradients(*args, **options)
            return loss * float("nan") if calls == 6 else loss

        with monkeypatch.context() as patch:
            patch.setattr(training.loop, "accumulate_gradients", broken)
            patch.setattr(training.run, "train", run)
            assert run_command.main(config) == run_command.NOT_FINITE
        assert "update 6 was not applied: loss nan" in caplog.text
        assert "rows [" in caplog.text
        steps = [path.name for path in sorted((config.out / "checkpoints").iterdir())]
        assert steps == ["step-000000004"]

    def test_a_gradient_that_is_not_finite_stops_too(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(model: torch.nn.Module, *args: Any, **options: Any) -> torch.Tensor:
            loss = accumulate_gradients(model, *args, **options)
            next(model.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
            return loss

        monkeypatch.setattr(training.loop, "accumulate_gradients", broken)
        with pytest.raises(FloatingPointError, match=r"update 1 .* gradient norm"):
            run(config)

    def test_of_the_held_out_puzzles(
        self,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def broken(*args: Any, **options: Any) -> MatchResult:
            return dataclasses.replace(held_out_match(*args, **options), loss_sum=float("nan"))

        monkeypatch.setattr("training.held_out.held_out_match", broken)
        monkeypatch.setattr(training.run, "train", run)
        assert run_command.main(config) == run_command.NOT_FINITE
        message = "the held-out puzzles is nan after update 5; the last checkpoint is of update 4"
        assert message in caplog.text
        assert all(row["kind"] == "train" for row in lasting_rows(config))


class TestUpdate:
    """An update applies the clipped gradient at the learning rate of the schedule."""

    def test_a_run_clips_and_steps_as_configured(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimizer = dataclasses.replace(config.optimizer, max_grad_norm=0.25, muon_lr_factor=2.0)
        config = dataclasses.replace(config, optimizer=optimizer, log_every=1)
        norms: list[float] = []
        rates: list[list[float]] = []
        step = JointOptimizer.step

        def recorded(self: JointOptimizer, closure: Any = None) -> Any:
            parameters = [p for group in self.param_groups for p in group["params"]]
            gradients = [p.grad for p in parameters if p.grad is not None]
            norms.append(float(torch.nn.utils.get_total_norm(gradients)))
            rates.append([group["lr"] for group in self.param_groups])
            return step(self, closure)

        monkeypatch.setattr(JointOptimizer, "step", recorded)
        run(config)
        rows: list[Any] = [row for row in lasting_rows(config) if row["kind"] == "train"]
        assert len(rows) == len(norms) > 10
        for row, norm, lr in zip(rows, norms, rates, strict=True):
            assert norm == pytest.approx(min(float(row["grad_norm"]), 0.25), rel=1e-4)
            assert lr == [2 * row["learning_rate"], row["learning_rate"], row["learning_rate"]]
        assert any(float(row["grad_norm"]) > 0.25 for row in rows)


class TestGradients:
    """The gradient of an update is that of the mean over its loss tokens, however it is split."""

    ROWS = (0, 3, 5, 7, 11, 13, 17, 19)

    def gradients(
        self, config: TrainConfig, splits: list[list[int]], attention: str = "padded"
    ) -> list[torch.Tensor]:
        store = TokenStore.open(config.data)
        layout = "packed" if ATTENTIONS[attention].is_packed else "padded"
        sampler = make_sampler(store, config=config.sampler_config(layout))  # type: ignore[arg-type]
        model = build_model(config.architecture, seed=1)
        use_attention(model, ATTENTIONS[attention])
        batches = [collate(store, np.array(rows, np.int64), shape=sampler.shape) for rows in splits]
        size = size_of(batches)
        accumulate_gradients(model, batches, size=size, accelerator=Accelerator(cpu=True))
        return [p.grad for p in model.parameters() if p.grad is not None]

    def reference(self, config: TrainConfig) -> list[torch.Tensor]:
        """One row at a time through plain transformers attention."""
        store = TokenStore.open(config.data)
        model = build_model(config.architecture, seed=1)
        losses, num_loss_tokens = torch.zeros(()), 0
        for row in self.ROWS:
            ids = torch.from_numpy(store[row].astype(np.int64))
            prompt_length = int(store.prompt_lengths[row])
            logits = model(input_ids=ids[None]).logits[0, prompt_length - 1 : -1]
            losses = losses + cross_entropy(logits, ids[prompt_length:], reduction="sum")
            num_loss_tokens += len(ids) - prompt_length
        (losses / num_loss_tokens).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    @pytest.mark.parametrize("num_parts", [1, 2, 4, 8])
    @pytest.mark.parametrize("attention", ["padded", "looped"])
    def test_any_split_gives_the_reference(
        self, finished: TrainConfig, num_parts: int, attention: str
    ) -> None:
        config = dataclasses.replace(
            finished, max_tokens_per_micro_batch=800, tokens_per_update=800
        )
        splits = [part.tolist() for part in np.array_split(np.array(self.ROWS), num_parts)]
        ours = self.gradients(config, splits, attention)
        theirs = self.reference(config)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-6)

    def test_an_empty_micro_batch_adds_nothing(self, finished: TrainConfig) -> None:
        rows = [list(self.ROWS)]
        alone, beside = self.gradients(finished, rows), self.gradients(finished, [*rows, []])
        assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True))
