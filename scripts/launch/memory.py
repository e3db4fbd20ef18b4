"""Estimated memory of every stage of a recipe.

    training     weights, their mean, gradients, optimizer state, activations of a micro-batch
    evaluation   weights, and the KV cache with all slots at maximum length
    other        a constant allowance; puzzles and traces are streamed

The options of a stage are parsed by its command.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.model_format.precision import FORMAT_BYTES, get_precision
from eval.engines.slot_plan import DEFAULT_SLOTS, longest_sequence, plan_slots, slot_capacity
from eval.sampling.selection import PAPER_COUNTS
from scripts.cli.main import parse
from scripts.launch.recipe import BUILD, EVALUATE, TRAIN, Recipe, Stage
from training.memory_table import num_parameters, planned_update

if TYPE_CHECKING:
    from data.model_format.facts import Mode
    from training.batching.shapes import Layout
    from training.config import TrainConfig

GPU_BYTES = 80_000_000_000
"""Memory of the device of an evaluation."""
_WEIGHT_BYTES = 4 + 2
"""Bytes of a parameter in an evaluation: as stored, and rounded to bf16."""
_AVERAGE_BYTES = 4
"""Bytes of a parameter in the running mean of the weights."""
HOST_BYTES = 1_000_000_000
"""Allowance for a stage without a model: a build of 1,465 puzzles was measured at 0.24 GB; the rest
is for the grids of a list of millions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Memory of one stage per device."""

    name: str
    """Name of the stage."""
    device: str
    """`GPU` or `CPU`."""
    total_bytes: int
    """Total."""
    detail: str
    """Largest component."""


def recipe_memory(recipe: Recipe, *, device_bytes: int = GPU_BYTES) -> Iterator[StageMemory]:
    """Yield the memory of every stage.

    Args:
        recipe: Recipe.
        device_bytes: Free memory of the device of an evaluation.

    Raises:
        ValueError: a stage has invalid options.
    """
    configs = {stage.name: _config(stage) for stage in recipe.stages}
    modes = {
        configs[s.name].out: configs[s.name].build.mode for s in recipe.stages if s.command == BUILD
    }
    trained = {
        configs[s.name].out / "final": configs[s.name] for s in recipe.stages if s.command == TRAIN
    }
    for stage in recipe.stages:
        config = configs[stage.name]
        device = "GPU" if stage.resources.gpus else "CPU"
        if stage.command == TRAIN:
            yield _training(stage.name, config, device)
        elif stage.command == EVALUATE and Path(config.model) in trained:
            model = trained[Path(config.model)]
            mode = modes.get(model.data, "scot") if config.mode == "auto" else config.mode
            yield _evaluation(stage.name, config, model, mode, device, device_bytes)
        else:
            detail = "puzzles and traces, an allowance"
            yield StageMemory(name=stage.name, device="CPU", total_bytes=HOST_BYTES, detail=detail)


def _config(stage: Stage) -> Any:
    _, config = parse(stage.command, stage.words[len(stage.command) :])
    return config


def _training(name: str, config: TrainConfig, device: str) -> StageMemory:
    layout: Layout = "packed" if device == "GPU" else "padded"
    num_positions = config.sampler_config(layout).micro_tokens
    memory = planned_update(
        config.architecture, precision=config.precision, num_positions=num_positions
    )
    has_average = config.optimizer.average_share > 0
    average_bytes = _AVERAGE_BYTES * num_parameters(config.architecture) if has_average else 0
    return StageMemory(
        name=name,
        device=device,
        total_bytes=memory.state_bytes + average_bytes + memory.activation_bytes,
        detail=f"activations of {num_positions:,} tokens",
    )


def _evaluation(
    name: str, config: Any, model: TrainConfig, mode: Mode, device: str, device_bytes: int
) -> StageMemory:
    sampling, network = config.sampling, model.architecture
    count = sampling.count or PAPER_COUNTS[sampling.sample]
    num_puzzles = (count or 1 << 20) * max(1, len(sampling.targets))
    length = longest_sequence(network.vocabulary.board, mode=mode, caps=config.caps(mode))
    weight_bytes = _WEIGHT_BYTES * num_parameters(network)
    kept_per_token = 2 * network.num_layers * network.hidden_size  # keys and values
    plan = plan_slots(
        num_slots=config.num_slots,
        default=DEFAULT_SLOTS["cuda" if device == "GPU" else "cpu"],
        num_puzzles=num_puzzles,
        slot_tokens=slot_capacity(length, max_positions=network.max_positions),
        bytes_per_token=kept_per_token * FORMAT_BYTES[get_precision(config.precision).cache],
        free_bytes=device_bytes - weight_bytes,
    )
    # Temporary copy of the keys or values of one layer while the cache grows.
    copy_bytes = plan.max_cache_bytes // network.num_layers
    return StageMemory(
        name=name,
        device=device,
        total_bytes=weight_bytes + plan.max_cache_bytes + copy_bytes,
        detail=f"KV cache, {plan.num_slots:,} slots of at most {plan.slot_tokens:,} tokens",
    )
