"""Tests of presets, their command-line options, and the comparison on resume."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from data.model_format.facts import check_model_folder
from data.runtime.options import option_value
from training.commands.run import base_config
from training.config import (
    MUTABLE_ON_RESUME,
    PRESETS,
    TrainConfig,
    are_constant,
    differing_fields,
    make_config,
)
from training.models.families import MODEL_PRESETS
from training.schedule import OptimizerConfig

PATHS: dict[str, Any] = {"data": Path("data"), "out": Path("out")}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_name_themselves_and_their_model(name: str) -> None:
    config = make_config(name, **PATHS)
    assert config.preset == name
    assert config.architecture == MODEL_PRESETS[config.model]()


def test_the_paper_preset_is_the_papers_recipe() -> None:
    config = make_config("paper", **PATHS)
    assert (config.budget, config.budget_unit) == (20_000_000_000, "tokens")
    assert (config.tokens_per_update, config.precision) == (100_000, "bf16")
    assert config.architecture == MODEL_PRESETS["paper-l6"]()
    assert config.optimizer == OptimizerConfig()


def test_options_change_what_presets_set() -> None:
    options = ["--data", "d", "--out=o", "--preset", "small", "--model=small-6x6", "--seed", "4"]
    options += ["--optimizer.peak-lr", "0.25", "--architecture.rope-theta", "1e6", "--wandb"]
    config = tyro.cli(TrainConfig, args=options, default=base_config(options))
    expected = make_config("small", data=Path("d"), out=Path("o"), model="small-6x6")
    assert config == dataclasses.replace(
        expected,
        seed=4,
        wandb=True,
        optimizer=dataclasses.replace(expected.optimizer, peak_lr=0.25),
        architecture=dataclasses.replace(expected.architecture, rope_theta=1e6),
    )


def test_the_last_value_of_an_option_counts() -> None:
    assert option_value(["--preset", "a", "--preset=b", "--seed", "1"], "--preset") == "b"
    assert option_value(["--presets", "a"], "--preset") is None
    assert option_value(["--preset"], "--preset") == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": 0}, "budget: got 0"),
        ({"save_every": 0}, "save_every: got 0"),
        ({"data_seed": -1}, "data_seed: got -1"),
        ({"budget_unit": "epochs"}, "budget_unit: got 'epochs', allowed are tokens"),
        ({"precision": "fp8"}, "precision: got 'fp8'"),
        ({"max_eval_share": 0.0}, "max_eval_share: got 0.0"),
        ({"model": "gpt-2"}, "model: got 'gpt-2', allowed are paper-l4"),
    ],
)
def test_refusals_name_field_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_config("tiny", **PATHS, **changes)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ValueError, match="preset: got 'huge', allowed are paper, muon"):
        make_config("huge", **PATHS)


def test_the_plain_form_survives_json() -> None:
    plain = make_config("muon", **PATHS).as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert "out" not in plain


def test_a_resume_compares_all_but_the_free_fields() -> None:
    plain = make_config("tiny", **PATHS).as_dict()
    assert plain.keys() >= MUTABLE_ON_RESUME
    for name, value in plain.items():
        changed = plain | {name: {**value, "new": 1} if isinstance(value, dict) else "other"}
        differences = differing_fields(plain, changed)
        assert bool(differences) == (name not in MUTABLE_ON_RESUME)
        assert all(line.startswith(name) for line in differences)


def test_a_resume_accepts_configs_without_newer_fields() -> None:
    config = make_config("small", **PATHS).as_dict()
    old = copy.deepcopy(config)
    del old["optimizer"]["average_share"], old["optimizer"]["betas"], old["output_share"]
    assert differing_fields(old, config) == []
    changed = config | {"output_share": 0.5, "optimizer": config["optimizer"] | {"betas": [0, 0]}}
    assert differing_fields(old, changed) == [
        "optimizer.betas: the run has [0.9, 0.999], got [0, 0]",
        "output_share: the run has 1.0, got 0.5",
    ]


def test_the_schedule_may_change_while_it_is_constant() -> None:
    """Constant from 100 to 800 of 1,000, and from 200 to 1,000 of 2,000."""
    wsd = OptimizerConfig(schedule="wsd", warmup_share=0.1, decay_share=0.2)
    old = make_config("tiny", **PATHS, budget=1_000, optimizer=wsd)
    halved = dataclasses.replace(wsd, decay_share=0.5, final_lr=0.0)
    new = dataclasses.replace(old, budget=2_000, optimizer=halved)
    names = ["budget", "optimizer.decay_share", "optimizer.final_lr"]
    for used in (None, 0, 100, 199, 200, 500, 800, 801, 1_000):
        is_constant = used is not None and are_constant((old.as_dict(), new.as_dict()), used=used)
        differences = differing_fields(old.as_dict(), new.as_dict(), ignores_schedule=is_constant)
        expected = [] if used in (200, 500, 800) else names
        assert [line.partition(":")[0] for line in differences] == expected
    for changes in ({"schedule": "cosine"}, {"peak_lr": 1e-3}, {"average_share": 0.8}):
        other = dataclasses.replace(new, optimizer=dataclasses.replace(halved, **changes))
        is_constant = are_constant((old.as_dict(), other.as_dict()), used=500)
        assert differing_fields(old.as_dict(), other.as_dict(), ignores_schedule=is_constant)


@pytest.mark.parametrize(
    ("preset", "board", "model", "hidden_size"),
    [("small", "6x6", "small-6x6", 192), ("paper", "6x6", "paper-l6", 512)],
)
def test_board_of_the_data_decides_the_model(
    preset: str, board: str, model: str, hidden_size: int
) -> None:
    config = make_config(preset, **PATHS, board=board)
    assert (config.model, config.architecture.board) == (model, board)
    assert config.architecture.hidden_size == hidden_size


def test_named_model_wins_over_the_board_of_the_data() -> None:
    config = make_config("small", **PATHS, model="small-9x9", board="6x6")
    assert config.architecture.board == "9x9"


def test_missing_folders_are_named_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "run" / "final").mkdir(parents=True)
    (tmp_path / "run" / "final" / "sudocot.json").touch()
    code = (
        "import sys; from scripts.cli.main import main; code = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    options = ["train", "run", "--preset", "tiny", "--out", "o", "--data"]
    result = subprocess.run(
        [sys.executable, "-c", code, *options, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.endswith("no manifest.json, not a finished data set\n")
    with pytest.raises(FileNotFoundError, match="allowed is a model folder"):
        check_model_folder(tmp_path / "run")
