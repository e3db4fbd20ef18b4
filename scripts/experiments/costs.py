"""Cost model of the experiments: time, GPU hours, disk, and the bottleneck.

The time of an update is the larger of its arithmetic, divided over the GPUs that can take part, and
its kernel launches, plus the all-reduce of the gradients without any overlap. Startup, compilation
and queueing are not included.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.model_format.facts import Mode
from data.stats import PAPER_NUM_ROWS, PAPER_TABLE
from eval.engines.contract import SCOT_MAX_NEW_TOKENS
from scripts.experiments.model_sizes import PAPER_PARAMETERS
from scripts.experiments.rates import Rates
from scripts.experiments.trainings import LONGEST, Training
from training.models.families import flops_per_token

TOKENS_PER_UPDATE = 100_000
NUM_TEST_PUZZLES = 422_786
SEGMENT_CONTEXT = 600.0
"""Mean number of KV cache entries that a decode step of a segment reads."""
LOSS_SHARES: dict[Mode, float] = {"cot": 0.84, "scot": 0.69}
"""Share of loss tokens in the study's data, from `sudocot data stats`."""
_BYTES_PER_PARAMETER = 4 + 8
"""Weights and the two moments of AdamW, fp32."""
_CHECKPOINTS_KEPT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Cost of a build, a training or an evaluation."""

    hours: float
    """Wall time."""
    num_devices: int
    """GPUs, or CPU cores."""
    bottleneck: str
    """Component that takes most of the time."""

    @property
    def device_hours(self) -> float:
        """Device hours: wall time multiplied by devices."""
        return self.hours * self.num_devices


def mean_context(mode: Mode, max_cot_length: int) -> float:
    """Return the mean sequence length of the paper's training set, for CoT weighted by tokens.

    Within each octave of N, all CoTs are taken to have the mean length.
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


def tokens_per_gpu_s(training: Training, rates: Rates) -> float:
    """Return the training throughput of one GPU in tokens/s, at a sufficient batch size."""
    context = mean_context(training.mode, training.max_cot_length)
    peak = rates.gpu_bf16_flops if training.config.precision == "bf16" else rates.gpu_fp32_flops
    return peak * rates.mfu / flops_per_token(training.config.architecture, context=context)


def training_cost(
    training: Training, rates: Rates, *, num_gpus: int, is_one_node: bool | None = None
) -> Cost:
    """Return the cost of a training of the paper.

    Args:
        training: The training.
        rates: Rates.
        num_gpus: Data-parallel GPUs.
        is_one_node: Whether they are in one node; None if they are when a node has as many.
    """
    if is_one_node is None:
        is_one_node = num_gpus <= rates.node_gpus
    bandwidth = rates.nvlink_bytes_per_s if is_one_node else rates.network_bytes_per_s
    # A micro-batch holds at least one sequence of maximal length.
    longest = training.max_cot_length if training.mode == "cot" else 2_048
    num_working = min(num_gpus, -(-TOKENS_PER_UPDATE // longest))
    shares = {
        "arithmetic": TOKENS_PER_UPDATE / num_working / tokens_per_gpu_s(training, rates),
        "kernel launches": rates.launch_s_per_layer * training.config.architecture.num_layers,
        "all-reduce of gradients": _all_reduce_s(training, bandwidth, num_gpus=num_gpus),
    }
    update_s = max(shares["arithmetic"], shares["kernel launches"])
    update_s += shares["all-reduce of gradients"]
    bottleneck = max(shares, key=lambda name: shares[name])
    if bottleneck == "arithmetic" and num_working < num_gpus:
        bottleneck = f"only {num_working} longest sequences fit an update"
    num_updates = training.config.budget / TOKENS_PER_UPDATE
    return Cost(hours=num_updates * update_s / 3600, num_devices=num_gpus, bottleneck=bottleneck)


def _all_reduce_s(training: Training, bandwidth: float, *, num_gpus: int) -> float:
    gradient_bytes = 4 * PAPER_PARAMETERS[training.config.model]
    return 2 * (num_gpus - 1) / num_gpus * gradient_bytes / bandwidth


def build_cost(mode: Mode, rates: Rates, *, num_cores: int) -> Cost:
    """Return the cost of the data set with N = 2^14; longer CoTs are traced up to N and dropped."""
    num_puzzles, cot_tokens, _, _ = PAPER_TABLE[LONGEST]
    traced = cot_tokens + (PAPER_NUM_ROWS - num_puzzles) * LONGEST
    shares = {
        "tracing": traced / (num_cores * rates.build_tokens_per_core_s),
        "writing to disk": disk_bytes(mode, rates) / rates.disk_write_bytes_per_s,
    }
    bottleneck = max(shares, key=lambda name: shares[name])
    return Cost(hours=shares[bottleneck] / 3600, num_devices=num_cores, bottleneck=bottleneck)


def evaluation_cost(
    training: Training, rates: Rates, *, engine: str, num_puzzles: int, num_gpus: int
) -> Cost:
    """Return the cost of an SCoT model's evaluation on random test puzzles.

    Args:
        training: The model, assumed to solve every puzzle.
        rates: Rates.
        engine: `segment` decodes token by token; `verify` checks drafts of the solver.
        num_puzzles: Test puzzles.
        num_gpus: Data-parallel GPUs.
    """
    _, cot_tokens, _, scot_tokens = PAPER_TABLE[LONGEST]
    tokens = num_puzzles * rates.mean_test_cot
    if engine == "verify":
        # Forward passes only (a third of the training FLOPs), over prompts and generated tokens.
        work = tokens * scot_tokens / cot_tokens / (3 * tokens_per_gpu_s(training, rates))
        return Cost(hours=work / num_gpus / 3600, num_devices=num_gpus, bottleneck="arithmetic")
    # The data contains each summary twice: as generated tokens and as the next prompt.
    generated = tokens * (1 + scot_tokens / cot_tokens) / 2
    shares = {
        "reading the KV cache": generated / decode_tokens_per_s(training, rates) / num_gpus,
        "the longest puzzle, token by token": (
            SCOT_MAX_NEW_TOKENS
            * rates.decode_step_s_per_layer
            * training.config.architecture.num_layers
        ),
    }
    bottleneck = max(shares, key=lambda name: shares[name])
    return Cost(hours=shares[bottleneck] / 3600, num_devices=num_gpus, bottleneck=bottleneck)


def decode_tokens_per_s(training: Training, rates: Rates) -> float:
    """Return the decoding throughput of one GPU in tokens/s, large batches in bf16."""
    hidden_size = training.config.architecture.hidden_size
    bytes_read = 2 * 2 * training.config.architecture.num_layers * hidden_size * SEGMENT_CONTEXT
    return rates.decode_efficiency * rates.gpu_memory_bytes_per_s / bytes_read


def disk_bytes(mode: Mode, rates: Rates) -> float:
    """Return the size of the data set with N = 2^14."""
    _, cot_tokens, _, scot_tokens = PAPER_TABLE[LONGEST]
    return (cot_tokens if mode == "cot" else scot_tokens) * rates.dataset_bytes_per_token


def run_bytes(num_parameters: int) -> float:
    """Return the size of a run folder: two checkpoints and the exported model."""
    return num_parameters * (_CHECKPOINTS_KEPT * _BYTES_PER_PARAMETER + 4)


def study_hours(training: Training, rates: Rates) -> float:
    """Return the CPU core hours of a training of the study, assumed proportional to layers."""
    tokens = training.config.budget / LOSS_SHARES[training.mode]
    return (
        tokens * training.config.architecture.num_layers / 4 / rates.cpu_train_tokens_per_s / 3600
    )
