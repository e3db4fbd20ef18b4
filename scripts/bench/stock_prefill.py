"""Prefill of compiled Llama and GPT-NeoX models: `python -m scripts.bench.stock_prefill FOLDER`.

Predicts all tokens of the segments of each folder's `self_test.json`, cut or repeated to batches of
equal rows, in one forward pass of transformers. FLOP/s count the matrix products of the layers and
the causal half of the attention scores; the peak is that of a large matrix product in the same
dtype, measured in the same run. The exit code is 1 if a prediction of the self-test is wrong.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro

from compile_tm.hf.self_test import read_cases
from compile_tm.stock.observe import load_stock_model
from scripts.bench.harness import Report, best_time
from scripts.bench.training import measure_peak

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Measure prefills on the CPU."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of `sudocot compile`, architecture llama or gpt-neox."""
    precisions: tuple[str, ...] = ("fp32", "bf16")
    """Formats of weights and activations."""
    rows: tuple[int, ...] = (1, 8)
    """Batch sizes."""
    length: int = 512
    """Tokens of a row."""
    repeats: int = 3
    """Number of forward passes; the fastest is reported."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark; return 0 if all predictions are correct, else 1."""
    table = []
    for folder in config.folders:
        for precision in config.precisions:
            table += _measure(folder, precision, config)
    facts = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    Report(title="Prefill of compiled models", rows=table, facts=facts).publish(config.out)
    return int(any(row["wrong"] for row in table))


@torch.inference_mode()
def _measure(folder: Path, precision: str, config: Config) -> list[dict[str, Any]]:
    segments = [segment for case in read_cases(folder) for segment in case.segments]
    model = load_stock_model(folder, dtype=DTYPES[precision])
    num_wrong = 0
    for row, first in segments:
        ids = torch.tensor(row)
        predicted = model(ids[None, :-1], use_cache=False).logits[0, first - 1 :].argmax(-1)
        num_wrong += int((predicted != ids[first:]).sum())
    stream = torch.tensor([token for row, _ in segments for token in row])
    peak = measure_peak(torch.device("cpu"), precision)
    table = []
    for num_rows in config.rows:
        num_tokens = num_rows * config.length
        batch = stream.repeat(-(-num_tokens // len(stream)))[:num_tokens].view(num_rows, -1)
        seconds = best_time(partial(model, batch, use_cache=False), repeats=config.repeats)
        rate = num_tokens * _flops_per_token(model, config.length) / seconds
        table.append(
            {
                "model": folder.name,
                "precision": precision,
                "rows": num_rows,
                "tokens/s": round(num_tokens / seconds),
                "GFLOP/s": round(rate / 1e9),
                "peak GFLOP/s": round(peak / 1e9),
                "share": round(rate / peak, 3),
                "compared": sum(len(row) - first for row, first in segments),
                "wrong": num_wrong,
            }
        )
    return table


def _flops_per_token(model: Any, length: int) -> float:
    """Return the mean FLOPs of a token of a row, without the embedding lookup."""
    config = model.config
    num_weights = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
    num_weights -= model.get_input_embeddings().weight.numel()
    head_size = (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    attention = 2 * config.num_attention_heads * head_size * (length + 1) / 2
    return float(2 * (num_weights + config.num_hidden_layers * attention))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
