"""Tests of model folders: what is read, and the error messages of invalid ones."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from data.model_format.facts import model_name
from data.model_format.precision import get_precision
from eval.network.model_folder import CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, ModelFolder
from eval.network.network import Network
from tests.eval.toy_models import FAMILIES, NUM_IDS, export, make_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return export(make_model("llama"), tmp_path / "model")


def edit_config(path: Path, **changes: Any) -> None:
    file = path / CONFIG_FILE
    config = json.loads(file.read_text())
    for key, value in changes.items():
        config[key] = value
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_digest_is_that_of_training(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = export(make_model(name), tmp_path / "model")
    with caplog.at_level(logging.WARNING):
        folder = ModelFolder.open(path)
    # transformers comments on scaled rotary embeddings without a factor.
    assert not [record for record in caplog.records if record.name.startswith(("eval", "data"))]
    assert (
        folder.weights_digest == json.loads((path / "sudocot.json").read_text())["weights_digest"]
    )
    assert folder.max_positions == 256


def test_weights_that_differ_from_the_record_cause_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = load_file(path / WEIGHTS_FILE)
    tensors["model.norm.weight"] += 1
    save_file(tensors, path / WEIGHTS_FILE)
    ModelFolder.open(path)
    assert "the weights are not those that sudocot.json describes" in caplog.text


def test_sharded_weights_are_read(path: Path) -> None:
    whole = ModelFolder.open(path)
    tensors = load_file(path / WEIGHTS_FILE)
    index: dict[str, str] = {}
    for number, names in enumerate((sorted(tensors)[:7], sorted(tensors)[7:])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in names}, path / file)
        index |= dict.fromkeys(names, file)
    (path / WEIGHTS_FILE).unlink()
    (path / INDEX_FILE).write_text(json.dumps({"weight_map": index}))
    assert ModelFolder.open(path).weights_digest == whole.weights_digest
    (path / "model-1.safetensors").unlink()
    with pytest.raises(OSError, match=r"model-1\.safetensors"):
        ModelFolder.open(path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map: got None, allowed is an object"),
        ({"weight_map": []}, r"weight_map: got \[\], allowed is an object"),
        ({"weight_map": {"a": 1}}, "weight_map: a: got 1, allowed is the name of a file"),
        (
            {"weight_map": {"a": "../model.safetensors"}},
            r"weight_map: a: got '\.\./model\.safetensors'",
        ),
        ({"weight_map": {"a": "."}}, r"weight_map: a: got '\.'"),
        ({"weight_map": {"a": ".."}}, r"weight_map: a: got '\.\.'"),
    ],
)
def test_malformed_indices_of_sharded_weights_are_refused(
    path: Path, index: dict[str, Any], message: str
) -> None:
    (path / WEIGHTS_FILE).rename(path.parent / WEIGHTS_FILE)
    (path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(ValueError, match=rf"{INDEX_FILE}: {message}"):
        ModelFolder.open(path)


def test_a_model_is_named_after_its_folder_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "final").mkdir(parents=True)
    assert [model_name(tmp_path / name) for name in ("run/final", "run")] == ["run", "run"]
    monkeypatch.chdir(tmp_path / "run" / "final")
    assert model_name(Path()) == "run"


def test_settings_of_transformers_4_are_read(path: Path) -> None:
    edit_config(path, rope_parameters=None, rope_theta=77.0)
    assert ModelFolder.open(path).network.rope_base == 77.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": None}, "model_type: got None, allowed is 'llama' or 'qwen3'"),
        ({"hidden_act": "gelu"}, "hidden_act: got 'gelu', allowed is 'silu'"),
        ({"use_sliding_window": True}, "allowed is full attention everywhere"),
        ({"layer_types": ["sliding_attention"]}, "allowed is full attention everywhere"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5}}, "got 'yarn'"),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": None}, "rope_theta: got None"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: got 3, allowed is a divisor of 4"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers: got 'two'"),
        ({"vocab_size": 20}, "vocab_size: got 20, allowed for 4x4 is at least 28"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"intermediate_size": 64}, r"got shape \(96, 48\), allowed is \(64, 48\)"),
        ({"num_hidden_layers": 3}, "9 missing weights, the first is model.layers.2"),
        ({"num_hidden_layers": 1}, "9 unknown weights, the first is model.layers.1"),
    ],
)
def test_what_is_not_computed_is_refused(path: Path, changes: dict[str, Any], message: str) -> None:
    edit_config(path, **changes)
    with pytest.raises(ValueError, match=message):
        ModelFolder.open(path)


def test_other_families_are_for_the_engine_hf(path: Path) -> None:
    """Their weights are counted and digested; what computes on its own names what it can."""
    whole = ModelFolder.open(path)
    edit_config(path, model_type="olmo2")
    folder = ModelFolder.open(path)
    assert folder.family == "olmo2"
    assert folder.max_positions == whole.max_positions
    assert folder.num_parameters == whole.num_parameters
    assert folder.weights_digest == whole.weights_digest
    tensors = load_file(path / WEIGHTS_FILE)
    tensors["transformer.wte.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, path / WEIGHTS_FILE)
    edit_config(path, tie_word_embeddings=True)
    assert ModelFolder.open(path).num_parameters == whole.num_parameters
    with pytest.raises(ValueError, match="got 'olmo2', only the engine hf supports it"):
        Network(folder, precision=get_precision("fp32"), device=torch.device("cpu"))


def test_damaged_and_pickled_weights_are_refused(path: Path) -> None:
    (path / WEIGHTS_FILE).write_bytes((path / WEIGHTS_FILE).read_bytes()[:5_000])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged weights"):
        ModelFolder.open(path)
    (path / WEIGHTS_FILE).rename(path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"neither model\.safetensors nor"):
        ModelFolder.open(path)


def test_whole_numbers_are_no_weights(path: Path) -> None:
    tensors = load_file(path / WEIGHTS_FILE)
    tensors["lm_head.weight"] = torch.zeros(NUM_IDS, 48, dtype=torch.int32)
    save_file(tensors, path / WEIGHTS_FILE)
    with pytest.raises(ValueError, match=r"lm_head\.weight: got torch\.int32"):
        ModelFolder.open(path)
