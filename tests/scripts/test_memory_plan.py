"""Tests of planned memory: every stage of every recipe fits its device."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

from data.model_format.precision import PrecisionName, get_precision
from eval.network.cache import PaddedCache
from eval.network.config import read_network_config
from eval.network.network import cache_shapes
from eval.network.types import DTYPES
from scripts.experiments.experiments import EXPERIMENTS
from scripts.experiments.recipe import make_recipe
from scripts.experiments.settings import Settings
from scripts.launch.memory import recipe_memory
from scripts.launch.recipe import EVALUATE, TRAIN, Recipe, Resources, Stage
from tests.eval.engine_cases import cache_bytes
from tests.training.toy import BOARD
from training.memory import estimate_update
from training.memory_table import num_parameters, planned_update
from training.models.attention import ATTENTIONS, use_attention
from training.models.build import build_model, count_parameters, transformers_config
from training.models.families import MODEL_PRESETS, ModelConfig

HEADROOM = 1.1
"""Share for what the allocator cannot use, and for the context of CUDA."""
QUICKSTART = Path(__file__).parents[2] / "scripts" / "quickstart.sh"


@pytest.mark.parametrize("name", ["all", "study", "study-6x6", "optimizers-6x6"])
def test_all_recipes_fit_a_gpu_of_80_gb(name: str) -> None:
    recipe = make_recipe(Settings(name=name), resources=Resources(gpus=1))
    planned = {memory.name: memory for memory in recipe_memory(recipe)}
    assert planned.keys() == {stage.name for stage in recipe.stages}
    assert all(HEADROOM * memory.total_bytes < 80e9 for memory in planned.values())
    devices = {planned[s.name].device for s in recipe.stages if s.command in (TRAIN, EVALUATE)}
    assert devices == {"GPU"}
    if name == "all":  # it holds the trainings of every experiment of the paper
        experiments = [e for e in EXPERIMENTS.values() if e.setup == "paper"]
        names = {training.name for experiment in experiments for training in experiment.trainings}
        assert names <= planned.keys()


def test_the_planned_cache_is_what_the_cache_takes() -> None:
    """The longest CoTs of the paper, whose slots at their longest were 412 GB once."""
    recipe = make_recipe(Settings(name="cot-l6"), resources=Resources(gpus=1))
    (planned,) = [m for m in recipe_memory(recipe) if m.name == "cot-l6-n16384-seed0-targets"]
    slots, tokens = (int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", planned.detail))
    config = transformers_config(MODEL_PRESETS["paper-l6"]()).to_dict()
    network = read_network_config(config, source="paper-l6")
    cache = PaddedCache(
        cache_shapes(network),
        num_slots=slots,
        capacity=256,
        device=torch.device("meta"),
        dtype=DTYPES[get_precision("bf16").cache],
    )
    assert cache_bytes(cache) == slots * 256 * 12_288  # of L = 6, d = 512
    cache.grow(tokens)
    assert tokens == network.max_positions == 32_768
    assert 0.6 * 80e9 < cache_bytes(cache) < planned.total_bytes < 80e9


def test_the_quickstart_on_9x9_fits_a_gpu_of_24_gb() -> None:
    text = QUICKSTART.read_text()
    (options,) = re.findall(r"9x9\)\n(?:(?!;;).)*?recipe=\((.*?)\)", text, re.DOTALL)
    assert '"$engine" --sample all' in text
    train = ("train", "run", *shlex.split(options), "--data", "scot", "--out", "run")
    stages = [Stage(name="train", words=train, resources=Resources(gpus=1))]
    for engine in ("segment", "verify"):
        words = ("--model", "run/final", "--data", "test", "--sample", "all", "--out", engine)
        stages.append(
            Stage(
                name=engine,
                words=("eval", "run", *words, "--engine", engine),
                needs=("train",),
                resources=Resources(gpus=1),
            )
        )
    recipe = Recipe(name="quickstart", stages=tuple(stages))
    planned = list(recipe_memory(recipe, device_bytes=24_000_000_000))
    assert [memory.name for memory in planned] == ["train", "segment", "verify"]
    # Both of its trainings share the GPU.
    assert 2 * HEADROOM * planned[0].total_bytes < 24e9
    assert all(HEADROOM * memory.total_bytes < 24e9 for memory in planned)


def test_the_average_of_the_weights_takes_memory() -> None:
    words = ("train", "run", "--preset", "small", "--data", "scot", "--out", "run")
    average = ("--optimizer.average-share", "0.2")
    plain, averaged = (
        next(recipe_memory(Recipe(name="one", stages=(Stage(name="train", words=w),))))
        for w in (words, words + average)
    )
    num_bytes = 4 * num_parameters(MODEL_PRESETS["small-4x4"]())
    assert averaged.total_bytes - plain.total_bytes == num_bytes


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_are_what_autograd_saves_of_a_real_model(family: str, precision: str) -> None:
    config = ModelConfig(board=BOARD.name, family=family, hidden_size=64, num_layers=2, num_heads=2)
    num_positions, saved = 600, {}
    model = build_model(config, seed=0)
    use_attention(model, ATTENTIONS["padded"])
    weights = {parameter.data_ptr() for parameter in model.parameters()}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage
        return tensor

    ids = torch.zeros(1, num_positions, dtype=torch.int64)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    with autocast, saved_tensors_hooks(save, lambda tensor: tensor):
        positions = torch.arange(num_positions)[None]
        logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
    memory = estimate_update(config, precision=precision, num_positions=num_positions)
    expected = sum(storage.nbytes() for storage in saved.values())
    beside = 2 * 4 * num_positions * config.feed_forward_size
    assert memory.activation_bytes - beside == pytest.approx(expected, rel=0.01)
    assert memory.state_bytes == count_parameters(model) * (16 if precision == "fp32" else 18)


@pytest.mark.parametrize("name", MODEL_PRESETS)
def test_the_table_of_presets_is_what_is_computed(name: str) -> None:
    config = replace(MODEL_PRESETS[name](), init="scaled")
    cases: list[tuple[PrecisionName, int]] = [("bf16", 1_025), ("bf16", 13_281), ("fp32", 8_192)]
    for precision, num_positions in cases:
        planned = planned_update(config, precision=precision, num_positions=num_positions)
        assert planned == estimate_update(config, precision=precision, num_positions=num_positions)


def test_a_plan_of_the_paper_needs_no_torch() -> None:
    code = (
        "import sys; from scripts.cli.main import main\n"
        "assert main(['paper', 'plan', 'all']) == 0\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
