"""Training loop against `transformers.Trainer`: `python -m scripts.bench.training --scot DIR`.

Both train the same model on the same data set with the same optimizer and number of non-padding
tokens per update, alternating in one process; the fastest turn of each is reported. The Trainer
gets random batches of a fixed number of sequences, padded to the longest, as in the paper's
released code. FLOP/s count the matrix products of non-padding tokens only; the peak is measured
with a large matrix product of the same dtype. The breakdown of our updates by kind of operation is
from torch's profiler, in a separate turn.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from data.model_format.precision import get_precision
from data.runtime.cpus import available_cpus
from data.store import TokenStore
from scripts.bench.harness import Report, best_time
from scripts.bench.operation_times import operation_times
from training.batching.batches import IGNORE_INDEX, collate
from training.batching.sampler import Sampler, SamplerConfig, make_sampler
from training.gradients import UpdateSize, accumulate_gradients, clip_and_reduce
from training.models.attention import choose_attention, use_attention
from training.models.build import build_model
from training.models.families import MODEL_PRESETS, ModelConfig, flops_per_token
from training.models.fused import can_fuse, fuse_layers
from training.models.precision import apply_precision
from training.optimizers import build_optimizer
from training.reporting.records import mean_context
from training.schedule import OptimizerConfig
from training.setup import compile_model

NUM_COMPILING_UPDATES = 2
"""Updates during which the Trainer compiles for new shapes."""
MATMUL_SIZE = {"cpu": 2_048, "cuda": 8_192}


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare the throughput of both loops on a CoT and an SCoT data set."""

    cot: Path | None = None
    """CoT data set."""
    scot: Path | None = None
    """SCoT data set."""
    max_cot_length: int = 4_096
    """Cut-off N."""
    model: str = "small-9x9"
    """Model preset."""
    precision: str = "fp32"
    """Precision policy."""
    tokens_per_update: int = 32_768
    """Non-padding tokens per update."""
    max_tokens_per_micro_batch: int = 8_192
    """Positions per micro-batch in our loop."""
    trainer_micro_tokens: int = 8_192
    """Non-padding tokens per micro-batch of the Trainer, on average."""
    attention: str | None = None
    """Attention implementation of our loop (default: the fastest)."""
    compile: bool = False
    """Compile the model in both loops."""
    fused: bool = True
    """Use fused layers in our loop, if the family supports them."""
    num_updates: int = 3
    """Updates per turn."""
    num_turns: int = 3
    """Turns of each loop after one warm-up turn; the fastest is reported."""
    out: Path | None = None
    """JSON file to write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Tokens and time of one turn."""

    num_tokens: int
    """Non-padding tokens."""
    num_positions: int
    """Positions computed, padding included."""
    duration_s: float
    """Wall time."""


def main(config: Config) -> int:
    """Run the benchmark."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(available_cpus()[0])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    apply_precision(get_precision(config.precision), device=device)
    peak = measure_peak(device, config.precision)
    rows = []
    for folder in (config.cot, config.scot):
        if folder is not None:
            rows += compare(TokenStore.open(folder), config, device=device, peak=peak)
    if not rows:
        raise ValueError("cot, scot: got neither, allowed is at least one data set")
    facts = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "precision": config.precision,
        "tokens_per_update": config.tokens_per_update,
        "matmul_flops_per_s": peak,
    }
    title = f"training {config.model}, N = {config.max_cot_length}, {config.precision}"
    Report(title=title, rows=rows, facts=facts).publish(config.out)
    return 0


def measure_peak(device: torch.device, precision: str) -> float:
    """Return the FLOP/s of a large matrix product in the dtype of the precision."""
    size = MATMUL_SIZE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype)

    def multiply() -> None:
        for _ in range(4):
            a @ a
        synchronize(device)

    multiply()
    return 4 * 2 * size**3 / best_time(multiply, repeats=5)


def compare(
    store: TokenStore, config: Config, *, device: torch.device, peak: float
) -> list[dict[str, Any]]:
    """Return the rows of the table for one data set."""
    attention = choose_attention(
        config.attention, device=device, precision=get_precision(config.precision)
    )
    sampler = make_sampler(
        store,
        config=SamplerConfig(
            seed=0,
            tokens_per_update=config.tokens_per_update,
            max_tokens_per_micro_batch=config.max_tokens_per_micro_batch,
            layout="packed" if attention.is_packed else "padded",
            window_rows=8_192,
            max_cot_length=config.max_cot_length,
        ),
    )
    architecture = MODEL_PRESETS[config.model]()
    ours = our_turns(store, sampler, architecture, config, device=device)
    best: dict[str, Turn] = {}
    for _ in range(1 + config.num_turns):
        for name, turn in (
            ("HF Trainer", trainer_turn(store, sampler, architecture, config)),
            ("sudocot", next(ours)),
        ):
            if name not in best or speed(turn) > speed(best[name]):
                best[name] = turn
    cost = flops_per_token(architecture, context=mean_context(sampler))
    baseline = speed(best["HF Trainer"])
    shares = operation_times(lambda: next(ours), device=device)
    times = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    print(f"time of our updates on {store.manifest.mode}: {times}")
    return [
        {
            "data": store.manifest.mode,
            "loop": name,
            "tokens/s": speed(turn),
            "ratio": speed(turn) / baseline,
            "padding": 1 - turn.num_tokens / turn.num_positions,
            "GFLOP/s": speed(turn) * cost / 1e9,
            "of peak": speed(turn) * cost / peak,
        }
        for name, turn in best.items()
    ]


def speed(turn: Turn) -> float:
    """Return the non-padding tokens per second."""
    return turn.num_tokens / turn.duration_s


def synchronize(device: torch.device) -> None:
    """Synchronize the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def our_turns(
    store: TokenStore,
    sampler: Sampler,
    architecture: ModelConfig,
    config: Config,
    *,
    device: torch.device,
) -> Iterator[Turn]:
    """Yield turns of our loop: updates as in `training.loop`, without logging and checkpoints."""
    policy = get_precision(config.precision)
    reset_accelerate()
    accelerator = Accelerator(
        mixed_precision=apply_precision(policy, device=device), cpu=device.type == "cpu"
    )
    model = build_model(architecture, seed=0)
    use_attention(model, choose_attention(config.attention, device=device, precision=policy))
    nn.Module.to(model, device)
    if config.fused and can_fuse(model):
        fuse_layers(model)
    if config.compile:
        compile_model(model, sampler=sampler)
    optimizer = build_optimizer(model, OptimizerConfig())
    prepared: nn.Module = accelerator.prepare(model)
    updates = sampler.updates(position=0)
    while True:
        num_tokens = num_positions = 0
        synchronize(device)
        started_s = time.perf_counter()
        for _ in range(config.num_updates):
            update = next(updates)
            batches = [
                collate(store, rows, shape=sampler.shape).to(device)
                for rows in update.micro_batches
            ]
            size = UpdateSize(num_tokens=update.num_tokens, num_loss_tokens=update.num_loss_tokens)
            part = accumulate_gradients(prepared, batches, size=size, accelerator=accelerator)
            clip_and_reduce(
                prepared, part, max_grad_norm=1.0, stop_requested=False, accelerator=accelerator
            )
            optimizer.step()
            optimizer.zero_grad()
            num_tokens += update.num_tokens
            num_positions += update.num_tokens + update.num_pad_tokens
        synchronize(device)
        yield Turn(
            num_tokens=num_tokens,
            num_positions=num_positions,
            duration_s=time.perf_counter() - started_s,
        )


class PlainRows(Dataset[dict[str, list[int]]]):
    """Rows of a store as a map-style data set for the Trainer."""

    def __init__(self, store: TokenStore, sampler: Sampler) -> None:
        self._store = store
        self._rows = np.arange(len(store)) if sampler.rows is None else sampler.rows

    def __len__(self) -> int:
        return self._rows.size

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """Return token ids, and labels in which the prompt is ignored."""
        row = int(self._rows[index])
        ids = self._store[row].tolist()
        prompt_length = int(self._store.prompt_lengths[row])
        return {
            "input_ids": ids,
            "labels": [IGNORE_INDEX] * prompt_length + ids[prompt_length:],
        }


def pad_to_longest(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Return ids, labels and attention mask of a batch, padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full_like(ids, IGNORE_INDEX)
    mask = torch.zeros_like(ids)
    for b, row in enumerate(rows):
        length = len(row["input_ids"])
        ids[b, :length] = torch.tensor(row["input_ids"])
        labels[b, :length] = torch.tensor(row["labels"])
        mask[b, :length] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


class TimedTrainer(Trainer):
    """Trainer that counts the positions of forward passes; prefetched batches do not count."""

    masks: list[Tensor]

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], *rest: Any) -> Tensor:
        """Count the positions of a micro-batch."""
        self.masks.append(inputs["attention_mask"])
        loss: Tensor = super().training_step(model, inputs, *rest)
        return loss


class StepClock(TrainerCallback):
    """Measures the time from the first step after `num_warmup_steps` to the end of the last."""

    def __init__(self, *, num_warmup_steps: int, masks: list[Tensor]) -> None:
        self.num_warmup_steps, self.masks = num_warmup_steps, masks
        self.started_s = self.duration_s = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the timer after the warm-up."""
        del control
        if state.global_step == self.num_warmup_steps:
            synchronize(args.device)
            self.masks.clear()
            self.started_s = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Update the end time; the last step synchronizes the device."""
        del control
        if state.global_step == args.max_steps:
            synchronize(args.device)
        self.duration_s = time.perf_counter() - self.started_s


def trainer_turn(
    store: TokenStore, sampler: Sampler, architecture: ModelConfig, config: Config
) -> Turn:
    """Run one turn of the Trainer, timed from the first update after the warm-up."""
    rows = PlainRows(store, sampler)
    lengths = store.lengths if sampler.rows is None else store.lengths[sampler.rows]
    rows_per_batch = max(1, round(config.trainer_micro_tokens / lengths.mean()))
    accumulation = max(1, round(config.tokens_per_update / config.trainer_micro_tokens))
    reset_accelerate()
    # Each turn has a new Trainer, which compiles during its first updates.
    num_warmup_steps = NUM_COMPILING_UPDATES if config.compile else 0
    masks: list[Tensor] = []
    clock = StepClock(num_warmup_steps=num_warmup_steps, masks=masks)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=rows_per_batch,
            gradient_accumulation_steps=accumulation,
            max_steps=num_warmup_steps + config.num_updates,
            learning_rate=5e-4,
            weight_decay=0.01,
            optim="adamw_torch_fused",
            bf16=config.precision == "bf16",
            torch_compile=config.compile,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_num_workers=0,
        )
        trainer = TimedTrainer(
            model=build_model(architecture, seed=0),
            args=options,
            train_dataset=rows,
            data_collator=pad_to_longest,
            callbacks=[clock],
        )
        trainer.masks = masks
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return Turn(
        num_tokens=sum(int(mask.sum()) for mask in masks),
        num_positions=sum(mask.numel() for mask in masks),
        duration_s=clock.duration_s,
    )


def reset_accelerate() -> None:
    """Reset accelerate's process-wide state, which each loop creates anew."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
