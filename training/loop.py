"""The training loop: evaluate, accumulate gradients, clip and check, step, average, log, save."""

from __future__ import annotations

from data.runtime.progress import Advance
from data.runtime.signals import StopSignal
from training.batching.prefetch import micro_batches
from training.checkpoints.outputs import export_run, save_run
from training.gradients import UpdateSize, accumulate_gradients, clip_and_reduce
from training.held_out import HeldOutEvaluations
from training.optimizers import load_average, set_learning_rate, update_average
from training.reporting.records import RunRecords
from training.schedule import is_averaged, learning_rate
from training.setup import Run


def run_loop(run: Run, *, records: RunRecords, stop: StopSignal, advance: Advance) -> bool:
    """Train until the budget is used up, then evaluate and export.

    Args:
        run: New or restored run.
        records: Metrics and log of the session.
        stop: Stop signal, checked after every update.
        advance: Progress callback, called with the budget used by each update, and step and loss.

    Returns:
        True if the run is finished; False if a stop signal ended the session after a save.

    Raises:
        FloatingPointError: Loss or gradient of an update is not finite, and the update was not
            applied; or the loss of the held-out puzzles is not finite.
    """
    config, usage, model, optimizer = run.config, run.usage, run.model, run.optimizer
    evaluations = HeldOutEvaluations(run, records=records, stop=stop)
    updates = micro_batches(run)  # prefetched by a thread
    records.start()

    is_stopped = False
    used = usage.used(config.budget_unit)
    while used < config.budget and not is_stopped:
        # Evaluate on the held-out puzzles.
        if evaluations.is_due() and not evaluations.evaluate():
            is_stopped = True
            break

        # Forward and backward over this process's micro-batches.
        records.begin_update()
        update, batches = next(updates)
        loss_part = accumulate_gradients(
            model,
            batches,
            size=UpdateSize(num_tokens=update.num_tokens, num_loss_tokens=update.num_loss_tokens),
            accelerator=run.accelerator,
            board_state_weight=config.board_state_weight,
        )

        # Clip the gradients; check that loss and gradient are finite in all processes.
        with records.locating_errors(update):
            report = clip_and_reduce(
                model,
                loss_part,
                max_grad_norm=config.optimizer.max_grad_norm,
                stop_requested=stop.received is not None,
                accelerator=run.accelerator,
            )

        # Optimizer step, at the learning rate of the budget used so far.
        usage.add(update, loss=report.loss, puzzle_numbers=run.puzzle_numbers)
        used_before, used = used, usage.used(config.budget_unit)
        lr = learning_rate(config.optimizer, progress=used / config.budget)
        set_learning_rate(optimizer, lr)
        optimizer.step()
        optimizer.zero_grad()
        if is_averaged(config.optimizer, progress=used / config.budget):
            update_average(optimizer)
        records.end_update(update)
        detail = f"step {usage.step:,}, loss {report.loss:.4f}"
        advance(min(used, config.budget) - used_before, detail=detail)

        # Log, save, stop.
        is_last = used >= config.budget
        if is_last or usage.step % config.log_every == 0:
            records.training(report, lr=lr, progress=used / config.budget)
        if is_last or usage.step % config.save_every == 0:
            save_run(run, records)
        is_stopped = report.stop_requested

    if not is_stopped and config.optimizer.average_share:
        load_average(optimizer)
    if is_stopped or not evaluations.evaluate():
        save_run(run, records)
        records.stop(signal=stop.received or "a signal to another process")
        return False
    export_run(run)
    return True
