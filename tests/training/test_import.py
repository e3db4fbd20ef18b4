"""Tests of the import of the paper authors' checkpoints: conversion, errors, warnings."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXConfig, GPTNeoXForCausalLM

from data.model_format.facts import read_facts
from training.checkpoints.import_checkpoint import import_checkpoint
from training.commands.import_ import Config, main

IDS = torch.arange(98)[None]
OLD_ROPE_FIELDS: dict[str, Any] = {
    "rotary_pct": 1.0,
    "rotary_emb_base": 10000,
    "rope_scaling": None,
}


def write_checkpoint(
    folder: Path, *, head_name: str = "embed_out.weight", **changes: Any
) -> GPTNeoXForCausalLM:
    """Write a tiny checkpoint as the authors' script leaves it; `changes` go into config.json."""
    options: dict[str, Any] = {"rope_theta": 10000.0, "rotary_pct": 1.0}
    config = GPTNeoXConfig(
        vocab_size=98,
        hidden_size=32,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=6,
        pad_token_id=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **options,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPTNeoXForCausalLM(config)
    folder.mkdir()
    stored = json.loads(config.to_json_string()) | {"architectures": ["GPTNeoXForCausalLM"]}
    stored |= changes
    stored = {name: value for name, value in stored.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(stored))
    weights = {
        name.replace("lm_head.weight", head_name): tensor
        for name, tensor in model.state_dict().items()
    }
    torch.save(weights, folder / "pytorch_model.bin")
    return model


def convert(folder: Path) -> Any:
    return import_checkpoint(folder / "source", folder / "target", mode="scot", segment_tokens=512)


@pytest.mark.parametrize("head_name", ["embed_out.weight", "lm_head.weight"])
def test_converted_folder_has_the_same_logits(head_name: str, tmp_path: Path) -> None:
    """The output matrix was renamed in transformers 5.14; checkpoints have either name."""
    original = write_checkpoint(tmp_path / "source", head_name=head_name)
    config = Config(source=tmp_path / "source", target=tmp_path / "target", mode="scot")
    assert main(config) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, original(IDS).logits)
    assert model.generation_config.eos_token_id == [6, 4]
    text = "<input> (9,9) 9 </input>"
    assert AutoTokenizer.from_pretrained(tmp_path / "target")(text).input_ids == [1, 88, 97, 2]
    facts = read_facts(tmp_path / "target")
    assert (facts.board, facts.mode, facts.segment_tokens) == ("9x9", "scot", 512)
    assert (facts.data_digest, facts.precision) == (None, None)
    assert not list((tmp_path / "target").glob("*.bin"))


def test_a_cot_model_has_no_segments(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    import_checkpoint(tmp_path / "source", tmp_path / "target", mode="cot", segment_tokens=512)
    assert read_facts(tmp_path / "target").segment_tokens is None


def test_config_of_transformers_4_is_read(tmp_path: Path) -> None:
    original = write_checkpoint(
        tmp_path / "source", rope_parameters="absent", rope_theta="absent", **OLD_ROPE_FIELDS
    )
    assert convert(tmp_path).rope_theta == 10000.0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, original(IDS).logits)


def test_an_ignored_rope_theta_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The config says 1e6, the weights were trained with 1e4: the weights decide."""
    original = write_checkpoint(tmp_path / "source", rope_theta=1e6)
    with caplog.at_level(logging.WARNING):
        assert convert(tmp_path).rope_theta == 10000.0
    assert "GPT-NeoX ignores rope_theta 1e+06" in caplog.text
    stored = json.loads((tmp_path / "target" / "config.json").read_text())
    assert "rope_theta" not in stored
    assert stored["rope_parameters"]["rope_theta"] == 10000.0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, original(IDS).logits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type: got 'gpt2', allowed is 'gpt_neox'"),
        ({"vocab_size": 99}, "vocab_size: got 99, allowed is 98"),
        ({"use_parallel_residual": False}, "use_parallel_residual: got False, allowed is True"),
        ({"hidden_act": "relu"}, "hidden_act: got 'relu', allowed is 'gelu'"),
        (
            {"rope_parameters": "absent", **OLD_ROPE_FIELDS, "rotary_pct": 0.25},
            "rope_parameters: got .*0.25",
        ),
        ({"num_hidden_layers": 3}, "weights do not match the config: .*missing"),
        ({"num_hidden_layers": 1}, "weights do not match the config: .*unexpected"),
        ({"intermediate_size": 64}, "damaged or incompatible model"),
    ],
)
def test_other_networks_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", **changes)
    with pytest.raises(ValueError, match=message):
        convert(tmp_path)
    assert not (tmp_path / "target").exists()


class _Payload:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    weights = tmp_path / "source" / "pytorch_model.bin"
    torch.save({"a": _Payload(tmp_path / "executed")}, weights)
    with pytest.raises(ValueError, match="more than tensors and is rejected"):
        convert(tmp_path)
    with weights.open("wb") as file:
        pickle.dump(_Payload(tmp_path / "executed"), file, protocol=2)
    with pytest.raises(ValueError, match="more than tensors and is rejected"):
        convert(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_truncated_weights_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    weights = tmp_path / "source" / "pytorch_model.bin"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="damaged or incompatible model"):
        convert(tmp_path)


def test_config_that_is_no_json_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    (tmp_path / "source" / "config.json").write_text("{\n  vocab_size: 98}")
    with pytest.raises(ValueError, match=r"config\.json: .*line 2 column 3"):
        convert(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "pytorch_model.bin"])
def test_missing_file_is_named(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    (tmp_path / "source" / name).unlink()
    with pytest.raises(OSError, match=name):
        convert(tmp_path)


def test_imports_what_transformers_4_57_writes(tmp_path: Path) -> None:
    """Made by `make_authors_checkpoint.py` with that version, config.json included."""
    source = Path(__file__).with_name("authors_checkpoint")
    import_checkpoint(source, tmp_path / "target", mode="scot", segment_tokens=512)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    with torch.no_grad():
        logits = model(IDS).logits
    torch.testing.assert_close(logits, load_file(source / "logits.safetensors")["logits"])


def test_a_partly_rotated_checkpoint_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", partial_rotary_factor=0.25, rotary_pct=0.25)
    with pytest.raises(ValueError, match=r"partial_rotary_factor|rope_parameters"):
        convert(tmp_path)
