"""Training runs end to end on a CPU: budgets, resumption, stops, and exact gradients."""

from __future__ import annotations

import dataclasses
import logging
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from data.runtime.locks import locked_folder
from data.runtime.signals import REQUEUE_EXIT_CODE
from data.store import TokenStore
from tests.training.runs import (
    KilledError,
    at_update,
    final_digest,
    kill,
    lasting_rows,
    run,
    send,
    small_config,
)
from tests.training.toy import write_toy_data
from training.batching.sampler import make_sampler
from training.commands import run as train_command
from training.config import TrainConfig
from training.reporting.metrics import read_metrics
from training.run_folder import RunFolder
from training.solve_rate import held_out_match


def assert_same_run(config: TrainConfig, finished: TrainConfig) -> None:
    assert final_digest(config) == final_digest(finished)
    assert lasting_rows(config) == lasting_rows(finished)


def with_wsd(config: TrainConfig) -> TrainConfig:
    """A learning rate that is constant until the last 30% of the budget."""
    wsd = dataclasses.replace(config.optimizer, schedule="wsd", decay_share=0.3, average_share=0.0)
    return dataclasses.replace(config, optimizer=wsd)


class TestRun:
    """A run that nothing interrupts."""

    def test_leaves_a_model_that_transformers_loads(self, finished: TrainConfig) -> None:
        model = AutoModelForCausalLM.from_pretrained(finished.out / "final")
        assert model.config.vocab_size == 28
        names = {path.name for path in finished.out.iterdir()}
        assert names == {"config.json", "metrics.jsonl", "checkpoints", "final", ".lock"}

    def test_loss_falls_and_the_solve_rate_is_logged(self, finished: TrainConfig) -> None:
        rows = lasting_rows(finished)
        losses = [row["loss"] for row in rows if row["kind"] == "train"]
        assert losses[-1] < 0.8 * losses[0]  # type: ignore[operator]
        evals = [row for row in rows if row["kind"] == "eval"]
        assert [row["step"] for row in evals] == [5, 10, rows[-1]["step"]]
        assert all(0 <= row["solve_rate"] <= 1 and row["num_puzzles"] == 20 for row in evals)  # type: ignore[operator]

    def test_a_finished_run_is_reported_as_finished(
        self, finished: TrainConfig, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        before = (finished.out / "metrics.jsonl").read_bytes()
        assert run(finished) == 0
        assert "is finished" in caplog.text
        assert (finished.out / "metrics.jsonl").read_bytes() == before

    def test_seeds_decide_weights_and_order(
        self, finished: TrainConfig, config: TrainConfig, tmp_path: Path
    ) -> None:
        first = read_metrics(finished.out / "metrics.jsonl")[0]["initial_weights"]
        digests = {final_digest(finished)}
        for seed, data_seed in ((1, 0), (0, 1)):
            other = dataclasses.replace(
                config, out=tmp_path / f"{seed}{data_seed}", seed=seed, data_seed=data_seed
            )
            run(other)
            digests.add(final_digest(other))
            start = read_metrics(other.out / "metrics.jsonl")[0]["initial_weights"]
            assert (start == first) == (seed == 0)
        assert len(digests) == 3

    def test_packed_attention_trains_the_same_model(
        self, finished: TrainConfig, config: TrainConfig
    ) -> None:
        """Other micro-batches, so not bit for bit: the losses are of the same size."""
        run(dataclasses.replace(config, attention="looped"))
        ours, theirs = lasting_rows(config)[-1]["loss"], lasting_rows(finished)[-1]["loss"]
        assert ours == pytest.approx(theirs, rel=0.1)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
    @pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
    def test_a_compiled_model_trains_the_same(
        self, finished: TrainConfig, config: TrainConfig
    ) -> None:
        run(dataclasses.replace(config, compile=True))
        for ours, theirs in zip(lasting_rows(config), lasting_rows(finished), strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)

    def test_starts_from_a_model_folder(self, finished: TrainConfig, config: TrainConfig) -> None:
        run(dataclasses.replace(config, init_from=finished.out / "final"))
        start = read_metrics(config.out / "metrics.jsonl")[0]
        assert start["initial_weights"] == final_digest(finished)

    def test_resumes_without_the_model_folder_it_started_from(
        self, finished: TrainConfig, tmp_path: Path
    ) -> None:
        gone = dataclasses.replace(finished, init_from=tmp_path / "gone")
        assert train_command.main(gone) == 0
        with pytest.raises(FileNotFoundError, match="gone"):
            train_command.main(dataclasses.replace(gone, out=tmp_path / "new"))


class TestBudget:
    """When a run ends, and what it counts."""

    @pytest.mark.parametrize(
        ("unit", "amount"), [("tokens", 2_000), ("loss_tokens", 2_000), ("puzzles", 40)]
    )
    def test_stops_on_the_first_update_that_reaches_it(
        self, toy_segments: Path, tmp_path: Path, unit: str, amount: int
    ) -> None:
        """All counts, by hand from the rows of the updates, stand in the last row of the log."""
        config = small_config(
            toy_segments, tmp_path / "run", budget=amount, budget_unit=unit, log_every=1
        )
        run(config)
        store = TokenStore.open(toy_segments)
        updates = make_sampler(store, config=config.sampler_config("padded")).updates(position=0)
        rows = np.empty(0, np.int64)
        for row in lasting_rows(config):
            rows = np.concatenate([rows, next(updates).rows])
            tokens = sum(len(store[i]) for i in rows.tolist())
            loss_tokens = tokens - sum(int(store.prompt_lengths[i]) for i in rows.tolist())
            puzzles = len({int(store.puzzle_ids[i]) for i in rows.tolist()})
            assert row["position"] == rows.size
            assert (row["num_tokens"], row["num_loss_tokens"]) == (tokens, loss_tokens)
            assert row["num_puzzles"] == puzzles
            used = {"tokens": tokens, "loss_tokens": loss_tokens, "puzzles": puzzles}[unit]
            assert (used >= amount) == (row["step"] == lasting_rows(config)[-1]["step"])

    def test_learning_rate_follows_the_budget(self, finished: TrainConfig) -> None:
        rates = [row["learning_rate"] for row in lasting_rows(finished) if row["kind"] == "train"]
        assert rates == sorted(rates, reverse=True)  # type: ignore[type-var]
        assert rates[-1] == pytest.approx(finished.optimizer.final_lr)


class TestResume:
    """Runs that were stopped or killed equal the uninterrupted one."""

    def test_a_run_stopped_four_times_ends_bit_for_bit_the_same(
        self, finished: TrainConfig, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped within and at the end of an epoch, before and after regular checkpoints."""
        start = 0
        for step, number in (
            (2, signal.SIGTERM),
            (5, signal.SIGUSR1),
            (10, signal.SIGINT),
            (14, signal.SIGTERM),
        ):
            # The loop sees a signal at the update after it.
            with at_update(monkeypatch, step - start - 1, send(number)):
                assert run(config) == REQUEUE_EXIT_CODE
            stop = read_metrics(config.out / "metrics.jsonl")[-1]
            assert (stop["kind"], stop["step"], stop["signal"]) == ("stop", step, number.name)
            start = step
        assert run(config) == 0
        assert_same_run(config, finished)

    def test_a_run_killed_three_times_repeats_from_its_checkpoints(
        self, finished: TrainConfig, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed before the first checkpoint at step 4, between two, and after the second."""
        for step, start in ((2, 0), (6, 0), (11, 4)):
            with at_update(monkeypatch, step - start, kill), pytest.raises(KilledError):
                run(config)
        assert run(config) == 0
        assert_same_run(config, finished)

    def test_a_kill_while_saving(
        self, finished: TrainConfig, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("training.checkpoints.checkpoint.save_file", lambda *_: kill())
            with pytest.raises(KilledError):
                run(config)
        assert run(config) == 0
        assert_same_run(config, finished)

    def test_a_broken_newest_checkpoint(
        self,
        finished: TrainConfig,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        with at_update(monkeypatch, 9, send(signal.SIGTERM)):
            run(config)
        newest = config.out / "checkpoints" / "step-000000010" / "optimizer.pt"
        newest.write_bytes(newest.read_bytes()[:-100])
        assert run(config) == 0
        assert "step-000000010 is skipped: optimizer.pt is damaged" in caplog.text
        assert_same_run(config, finished)

    def test_a_moved_run_folder(
        self,
        finished: TrainConfig,
        config: TrainConfig,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """Stopped at step 6, right after an evaluation."""
        with at_update(monkeypatch, 5, send(signal.SIGTERM)):
            run(config)
        config.out.rename(tmp_path / "elsewhere")
        moved = dataclasses.replace(config, out=tmp_path / "elsewhere")
        assert run(moved) == 0
        assert_same_run(moved, finished)
        assert not config.out.exists()

    def test_another_budget_in_the_constant_phase(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The warmup is shorter than an update, so the rates of both budgets agree until then."""
        config = with_wsd(config)
        half = dataclasses.replace(config.optimizer, decay_share=0.5)
        longer = dataclasses.replace(config, budget=9_000, optimizer=half)
        with at_update(monkeypatch, 5, send(signal.SIGTERM)):
            assert run(config) == REQUEUE_EXIT_CODE
        assert run(longer) == 0
        starts = [
            row for row in read_metrics(config.out / "metrics.jsonl") if row["kind"] == "start"
        ]
        assert [row["changed_fields"] for row in starts] == [
            None,
            "budget: the run has 6000, got 9000; optimizer.decay_share: the run has 0.3, got 0.5",
        ]
        uninterrupted = dataclasses.replace(longer, out=tmp_path / "uninterrupted")
        assert run(uninterrupted) == 0
        assert final_digest(longer) == final_digest(uninterrupted)

    def test_another_budget_can_be_taken_back(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """It was not reached: the session was killed, and the newest checkpoint is damaged."""
        config = with_wsd(config)
        with at_update(monkeypatch, 5, send(signal.SIGTERM)):
            run(config)
        # Its warmup ends between the two checkpoints.
        warmup = dataclasses.replace(config.optimizer, warmup_share=0.4)
        other = dataclasses.replace(config, budget=5_000, optimizer=warmup)
        with at_update(monkeypatch, 1, kill), pytest.raises(KilledError):
            run(other)
        newest = max((config.out / "checkpoints").glob("step-*"))
        (newest / "optimizer.pt").write_bytes(b"damaged")
        with pytest.raises(ValueError, match="checkpoint of step 4: budget"):
            run(other)
        assert run(config) == 0
        uninterrupted = dataclasses.replace(config, out=tmp_path / "uninterrupted")
        assert run(uninterrupted) == 0
        assert final_digest(config) == final_digest(uninterrupted)

    def test_a_signal_during_the_evaluation(
        self, finished: TrainConfig, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The handler only notes it; the evaluation looks between its parts, and stops."""
        match = held_out_match
        calls = 0

        def interrupted(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            signal.raise_signal(signal.SIGTERM)
            return match(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr("training.held_out.PART_MICRO_BATCHES", 1)
            patch.setattr("training.held_out.held_out_match", interrupted)
            assert run(config) == REQUEUE_EXIT_CODE
        assert calls == 1
        stop = read_metrics(config.out / "metrics.jsonl")[-1]
        assert (stop["kind"], stop["step"], stop["signal"]) == ("stop", 5, "SIGTERM")
        assert run(config) == 0
        assert final_digest(config) == final_digest(finished)

    def test_a_second_interrupt_does_not_wait(
        self, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt_twice() -> None:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        with at_update(monkeypatch, 2, interrupt_twice), pytest.raises(KeyboardInterrupt):
            run(config)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


class TestRefusals:
    """What a run does not do, and says why."""

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"seed": 3}, "seed: the run has 0, got 3"),
            ({"tokens_per_update": 500}, "tokens_per_update: the run has 450, got 500"),
            ({"budget": 9_000}, "budget: the run has 6000, got 9000"),
        ],
    )
    def test_another_config(
        self, finished: TrainConfig, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            run(dataclasses.replace(finished, **changes))

    def test_a_nested_field_is_named(self, finished: TrainConfig) -> None:
        optimizer = dataclasses.replace(finished.optimizer, peak_lr=0.1)
        with pytest.raises(ValueError, match=r"optimizer\.peak_lr: the run has 0\.01, got 0\.1"):
            run(dataclasses.replace(finished, optimizer=optimizer))

    @pytest.mark.parametrize(("step", "budget"), [(11, 9_000), (5, 3_000)])
    def test_another_budget_during_a_decay(
        self, config: TrainConfig, step: int, budget: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That of the run has begun by then, or that of the requested budget would have."""
        config = with_wsd(config)
        with at_update(monkeypatch, step - 1, send(signal.SIGTERM)):
            run(config)
        with pytest.raises(ValueError, match=f"budget: the run has 6000, got {budget}"):
            run(dataclasses.replace(config, budget=budget))

    def test_another_data_set(self, finished: TrainConfig, toy_segments: Path) -> None:
        with pytest.raises(ValueError, match="data: the run has digest"):
            run(dataclasses.replace(finished, data=toy_segments, held_out=None))

    def test_a_folder_that_is_no_run(self, config: TrainConfig) -> None:
        config.out.mkdir()
        (config.out / "thesis.tex").touch()
        with pytest.raises(ValueError, match=r"contains files but no config\.json"):
            run(config)

    def test_a_second_command_while_one_trains(self, config: TrainConfig) -> None:
        config.out.mkdir()
        with locked_folder(config.out):
            with pytest.raises(ValueError, match="another process"):
                run(config)
            assert [file.name for file in config.out.iterdir()] == [".lock"]
            RunFolder(config.out).check(config, data_digest="any")
        assert not config.out.exists()  # nothing but a lock was in it

    def test_checkpoints_of_another_run(self, finished: TrainConfig, config: TrainConfig) -> None:
        other = dataclasses.replace(config, seed=5)
        other.out.mkdir()
        (other.out / "config.json").write_text(
            (finished.out / "config.json").read_text().replace('"seed": 0', '"seed": 5', 1)
        )
        (finished.out / "checkpoints").rename(other.out / "checkpoints")
        try:
            with pytest.raises(ValueError, match="checkpoint of step 14: seed"):
                run(other)
        finally:
            (other.out / "checkpoints").rename(finished.out / "checkpoints")

    def test_what_does_not_fit_together(self, config: TrainConfig, toy_segments: Path) -> None:
        shape = config.architecture
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({"architecture": dataclasses.replace(shape, board="6x6")}, "for 6x6 boards"),
            ({"architecture": dataclasses.replace(shape, max_positions=50)}, "max_positions"),
            ({"budget_unit": "puzzles"}, "got 6000 puzzles, the data has 60"),
            ({"held_out": toy_segments}, "held_out: mode is 'scot'"),
            ({"attention": "varlen"}, "attention varlen: got device cpu"),
            ({"attention": "looped", "compile": True}, "compile: got True"),
        )
        for changes, message in cases:
            with pytest.raises(ValueError, match=message):
                run(dataclasses.replace(config, **changes))
            assert not config.out.exists()

    def test_held_out_puzzles_that_are_trained_on(
        self,
        finished: TrainConfig,
        config: TrainConfig,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Toy puzzles of a seed are the same however many are asked for."""
        write_toy_data(tmp_path / "held_out", num_puzzles=7)
        run(dataclasses.replace(config, held_out=tmp_path / "held_out", budget=400))
        assert "held_out: 7 of the 7 held-out puzzles are in the training" in caplog.text
        counts = [
            read_metrics(of.out / "metrics.jsonl")[0]["held_out_training_puzzles"]
            for of in (config, finished)
        ]
        assert counts == [7, 0]

    def test_evaluations_are_put_off_when_they_take_too_long(self, config: TrainConfig) -> None:
        run(dataclasses.replace(config, max_eval_share=1e-9))
        rows = lasting_rows(config)
        evals = [row["step"] for row in rows if row["kind"] == "eval"]
        assert evals == [5, rows[-1]["step"]]  # the first and the last
