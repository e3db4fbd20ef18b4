"""What an experiment costs: time, GPU hours and disk, and what limits it.

An update of a training takes the longer of its arithmetic, divided over the GPUs that can take
part, and the launching of its kernels, and then the all-reduce of the gradients, counted as if none
of it ran beside the arithmetic. Times are of the work alone: no start, no compilation, no queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.stats import PAPER_NUM_ROWS, PAPER_TABLE
from scripts.experiments.model_sizes import PAPER_PARAMETERS
from scripts.experiments.rates import Rates
from scripts.experiments.trainings import LONGEST, Mode, Training

if TYPE_CHECKING:
    from training.models.families import ModelConfig

TOKENS_PER_UPDATE = 100_000
NUM_TEST_PUZZLES = 422_786
LONGEST_TEST_COT = 9_477_350
SCOT_TOKEN_CAP = 5_000_000
SEGMENT_CONTEXT = 600.0
"""Mean KV entries that a decoded token of a segment reads."""
LOSS_SHARES: dict[Mode, float] = {"cot": 0.84, "scot": 0.69}
"""Share of the study's tokens that bear loss; `sudocot data stats` of its data tells."""
_BYTES_PER_PARAMETER = 4 + 8
"""Weights and the two moments of AdamW."""
_CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Time of one piece of work on some number of devices."""

    hours: float
    """Wall time."""
    num_devices: int
    """GPUs, or CPU cores."""
    bottleneck: str
    """What takes most of the time."""

    @property
    def device_hours(self) -> float:
        """Hours times devices."""
        return self.hours * self.num_devices


def mean_context(mode: Mode, max_cot_length: int) -> float:
    """Mean sequence length of the paper's training set, weighted by tokens for CoT.

    Within each octave of N all CoTs count as long as their mean.
    """
    _, cot_tokens, num_segments, scot_tokens = PAPER_TABLE[max_cot_length]
    if mode == "scot":
        return scot_tokens / num_segments
    weighted = 0.0
    puzzles_before = tokens_before = 0
    for cutoff, (puzzles, tokens, _, _) in PAPER_TABLE.items():
        if cutoff <= max_cot_length:
            weighted += (tokens - tokens_before) ** 2 / (puzzles - puzzles_before)
            puzzles_before, tokens_before = puzzles, tokens
    return weighted / cot_tokens


def _architecture(training: Training) -> ModelConfig:
    from training.models.families import (
        MODEL_PRESETS,  # torch, which the commands' help can do without
    )

    return MODEL_PRESETS[training.model]()


def tokens_per_gpu_s(training: Training, rates: Rates) -> float:
    """Tokens that one GPU trains on in a second, when it has enough of them at once."""
    from training.models.families import flops_per_token

    config = _architecture(training)
    context = mean_context(training.mode, training.max_cot_length)
    peak = rates.gpu_bf16_flops if training.precision == "bf16" else rates.gpu_fp32_flops
    return peak * rates.mfu / flops_per_token(config, context=context)


def training_cost(training: Training, rates: Rates, *, num_gpus: int) -> Cost:
    """Cost of a training of the paper."""
    # A micro-batch holds at least one sequence of the greatest length.
    longest = training.max_cot_length if training.mode == "cot" else 2_048
    num_working = min(num_gpus, -(-TOKENS_PER_UPDATE // longest))
    shares = {
        "arithmetic": TOKENS_PER_UPDATE / num_working / tokens_per_gpu_s(training, rates),
        "kernel launches": rates.launch_s_per_layer * training.num_layers,
        "all-reduce of gradients": _all_reduce_s(training, rates, num_gpus=num_gpus),
    }
    update_s = max(shares["arithmetic"], shares["kernel launches"])
    update_s += shares["all-reduce of gradients"]
    bottleneck = max(shares, key=lambda name: shares[name])
    if bottleneck == "arithmetic" and num_working < num_gpus:
        bottleneck = f"only {num_working} longest sequences fit an update"
    num_updates = training.num_tokens / TOKENS_PER_UPDATE
    return Cost(hours=num_updates * update_s / 3600, num_devices=num_gpus, bottleneck=bottleneck)


def _all_reduce_s(training: Training, rates: Rates, *, num_gpus: int) -> float:
    is_one_node = num_gpus <= rates.node_gpus
    bandwidth = rates.nvlink_bytes_per_s if is_one_node else rates.network_bytes_per_s
    gradient_bytes = 4 * PAPER_PARAMETERS[training.model]
    return 2 * (num_gpus - 1) / num_gpus * gradient_bytes / bandwidth


def build_cost(mode: Mode, rates: Rates, *, num_cores: int) -> Cost:
    """Cost of the data set with N = 2^14; longer puzzles are traced up to N and left out."""
    num_puzzles, cot_tokens, _, scot_tokens = PAPER_TABLE[LONGEST]
    traced = cot_tokens + (PAPER_NUM_ROWS - num_puzzles) * LONGEST
    written = (cot_tokens if mode == "cot" else scot_tokens) * rates.dataset_bytes_per_token
    shares = {
        "tracing": traced / (num_cores * rates.build_tokens_per_core_s),
        "writing to disk": written / rates.disk_write_bytes_per_s,
    }
    bottleneck = max(shares, key=lambda name: shares[name])
    return Cost(hours=shares[bottleneck] / 3600, num_devices=num_cores, bottleneck=bottleneck)


def evaluation_cost(
    training: Training, rates: Rates, *, engine: str, num_puzzles: int, num_gpus: int
) -> Cost:
    """Cost of an SCoT model's evaluation on random test puzzles.

    Args:
        training: The model, which is taken to solve what it is given.
        rates: Rates.
        engine: `segment` decodes token by token; `verify` lets the solver draft.
        num_puzzles: Test puzzles.
        num_gpus: GPUs, each with its own puzzles.
    """
    _, cot_tokens, _, scot_tokens = PAPER_TABLE[LONGEST]
    tokens = num_puzzles * rates.mean_test_cot
    if engine == "verify":
        # Forward passes alone, a third of a step of training, over prompts too.
        work = tokens * scot_tokens / cot_tokens / (3 * tokens_per_gpu_s(training, rates))
        return Cost(hours=work / num_gpus / 3600, num_devices=num_gpus, bottleneck="arithmetic")
    # Each summary stands in the data twice, as a prompt and as what is generated.
    generated = tokens * (1 + scot_tokens / cot_tokens) / 2
    shares = {
        "reading the KV cache": generated / decode_tokens_per_s(training, rates) / num_gpus,
        "the longest puzzle, token by token": (
            SCOT_TOKEN_CAP * rates.decode_step_s_per_layer * training.num_layers
        ),
    }
    bottleneck = max(shares, key=lambda name: shares[name])
    return Cost(hours=shares[bottleneck] / 3600, num_devices=num_gpus, bottleneck=bottleneck)


def decode_tokens_per_s(training: Training, rates: Rates) -> float:
    """Tokens that one GPU decodes in a second, many segments at once, in bf16."""
    hidden_size = _architecture(training).hidden_size
    bytes_read = 2 * 2 * training.num_layers * hidden_size * SEGMENT_CONTEXT
    return rates.decode_efficiency * rates.gpu_memory_bytes_per_s / bytes_read


def disk_bytes(mode: Mode, rates: Rates) -> float:
    """Size of the data set with N = 2^14."""
    _, cot_tokens, _, scot_tokens = PAPER_TABLE[LONGEST]
    return (cot_tokens if mode == "cot" else scot_tokens) * rates.dataset_bytes_per_token


def run_bytes(num_parameters: int) -> float:
    """Size of a run folder: two checkpoints and the model."""
    return num_parameters * (_CHECKPOINTS_KEPT * _BYTES_PER_PARAMETER + 4)


def study_hours(training: Training, rates: Rates) -> float:
    """Core hours of a training of the study on a CPU, all layers taken to cost alike."""
    tokens = training.num_tokens / LOSS_SHARES[training.mode]
    return tokens * training.num_layers / 4 / rates.cpu_train_tokens_per_s / 3600
