"""Tests of the model folder: loading with plain transformers, facts, initialization from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from data.model_format.facts import ModelFacts, read_facts
from data.model_format.precision import PRECISIONS
from data.model_format.weights import weights_digest
from data.store import TokenStore
from solver.boards import get_board
from solver.vocabulary import Vocabulary
from tests.training.runs import run, small_config
from training.checkpoints.export import export_model, load_weights
from training.models.attention import ATTENTIONS, use_attention
from training.models.build import build_model, check_master_weights, transformers_config
from training.models.families import ModelConfig
from training.models.rotary import check_rotary
from training.reporting.metrics import read_metrics

LLAMA = ModelConfig(
    board="4x4", hidden_size=32, num_layers=2, num_heads=2, rope_theta=5000.0, max_positions=40
)
BOARD = get_board("4x4")
NETWORKS = {
    "llama": LLAMA,
    "llama_qk_norm": replace(LLAMA, qk_norm=True),
    "llama_tied": replace(LLAMA, tie_embeddings=True),
    "gpt_neox": replace(LLAMA, family="gpt_neox"),
}
FACTS = ModelFacts(
    board="4x4",
    mode="scot",
    trace_rule="rule-1",
    segment_tokens=64,
    data_digest="0123abcd",
    precision=PRECISIONS["bf16"].as_dict(),
    training={"num_tokens": 123_456, "seed": 7},
)
PROMPT = "<input> (1,1) 4 (2,3) 1 </input>"
FRESH_PROCESS = """
import sys, warnings
warnings.simplefilter("error")
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(sys.argv[1], return_tensors="pt")
    generated = model.generate(**inputs)
    with torch.no_grad():
        logits = model(**inputs).logits
    torch.save([inputs.input_ids, generated, logits], folder + ".pt")
assert not {"training", "solver", "data"} & sys.modules.keys()
"""
networks = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a model folder for each network."""
    root = tmp_path_factory.mktemp("export")
    for name, config in NETWORKS.items():
        model = build_model(config, seed=0)
        use_attention(model, ATTENTIONS["padded"])  # as after training
        export_model(model, root / name, facts=FACTS)
    return root


@pytest.fixture(scope="module")
def loaded(exported: Path) -> dict[str, list[Tensor]]:
    """Prompt, greedy continuation and logits from a process that has transformers alone."""
    folders = [str(exported / name) for name in NETWORKS]
    command = [sys.executable, "-I", "-c", FRESH_PROCESS, PROMPT, *folders]
    subprocess.run(command, check=True, cwd="/", capture_output=True)
    return {name: torch.load(exported / f"{name}.pt", weights_only=True) for name in NETWORKS}


@networks
def test_plain_transformers_gives_the_same_logits(
    name: str, loaded: dict[str, list[Tensor]]
) -> None:
    ids, _, logits = loaded[name]
    vocabulary = LLAMA.vocabulary
    assert [vocabulary.tokens[i] for i in ids[0].tolist()] == PROMPT.split()
    model = build_model(NETWORKS[name], seed=0)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, logits)


@networks
def test_generation_is_greedy_and_ends_at_the_last_position(
    name: str, loaded: dict[str, list[Tensor]]
) -> None:
    ids, generated, _ = loaded[name]
    stops = torch.isin(generated[0, ids.shape[1] :], torch.tensor([4, 6]))
    assert generated.shape[1] == LLAMA.max_positions or stops[-1]
    assert not stops[:-1].any()
    with torch.no_grad():
        logits = build_model(NETWORKS[name], seed=0)(generated).logits[0]
    assert torch.equal(logits.argmax(-1)[ids.shape[1] - 1 : -1], generated[0, ids.shape[1] :])


@networks
def test_folder_names_ids_and_stops(name: str, exported: Path) -> None:
    generation: Any = GenerationConfig.from_pretrained(exported / name)
    assert generation.eos_token_id == [6, 4]
    assert (generation.bos_token_id, generation.pad_token_id) == (1, 0)
    assert generation.do_sample is False
    config = json.loads((exported / name / "config.json").read_text())
    assert config["rope_parameters"]["rope_theta"] == 5000.0
    assert config["vocab_size"] == 28
    old_name = "rotary_emb_base" if config["model_type"] == "gpt_neox" else "rope_theta"
    assert config[old_name] == 5000.0
    assert config.get("rotary_pct", 1.0) == 1.0
    assert "sudocot" not in json.dumps(config)


@networks
def test_facts_survive_and_name_the_weights(name: str, exported: Path) -> None:
    assert read_facts(exported / name) == FACTS
    record = json.loads((exported / name / "sudocot.json").read_text())
    assert record["weights_digest"] == weights_digest(build_model(NETWORKS[name], seed=0))


def test_card_has_the_training_facts(exported: Path) -> None:
    card = (exported / "llama" / "README.md").read_text()
    for fact in ("4x4 Sudoku", "rule-1", "0123abcd", "| num_tokens | 123,456 |", "| seed | 7 |"):
        assert fact in card
    assert "bf16 (weights fp32, activations bf16" in card
    assert "</summary>" in card
    assert " solves " not in card  # without a rate
    sample = card.split("```text\n")[1].split("```")[0]
    assert sample.splitlines()[0] == "(4,3) 2"
    assert "<none>" in sample
    assert "## Accuracy and limits" in card


def test_example_of_the_card_runs(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = (exported / "gpt_neox" / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0].replace("print(", "text = (")
    monkeypatch.chdir(exported / "gpt_neox")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["text"].startswith("<input> (3,3) 4 (3,4) 3 (4,1) 4 (4,4) 1 </input> ")


def test_full_weights_can_come_from_outside(tmp_path: Path) -> None:
    """A sharded model does not hold its own weights."""
    source = build_model(LLAMA, seed=1)
    export_model(
        build_model(LLAMA, seed=2), tmp_path / "m", facts=FACTS, state_dict=source.state_dict()
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert weights_digest(model) == weights_digest(source)
    record = json.loads((tmp_path / "m" / "sudocot.json").read_text())
    assert record["weights_digest"] == weights_digest(source)


def test_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any, **__: Any) -> None:
        raise SafetensorError("no space left")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full_disk)
    with pytest.raises(OSError, match=r"model: cannot be written.* no space left"):
        export_model(build_model(LLAMA, seed=0), tmp_path / "model", facts=FACTS)
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_is_not_touched(exported: Path) -> None:
    with pytest.raises(FileExistsError, match="exists already"):
        export_model(build_model(LLAMA, seed=5), exported / "llama", facts=FACTS)
    assert read_facts(exported / "llama") == FACTS


def test_vocabulary_of_another_board_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 28, a 9x9 model has 98"):
        export_model(
            build_model(LLAMA, seed=0), tmp_path / "model", facts=replace(FACTS, board="9x9")
        )


@networks
def test_training_starts_from_an_exported_folder(name: str, exported: Path) -> None:
    model = build_model(NETWORKS[name], seed=9)
    load_weights(model, exported / name, board=BOARD)
    assert weights_digest(model) == weights_digest(build_model(NETWORKS[name], seed=0))


@networks
def test_training_starts_from_a_model_of_another_board(name: str, exported: Path) -> None:
    """Layers and the rows of common tokens are copied, new rows have the spread of their kind."""
    config, board = NETWORKS[name], get_board("6x6")
    small = build_model(config, seed=0)
    model = build_model(replace(config, board="6x6"), seed=9)
    load_weights(model, exported / name, board=board, seed=5)
    check_master_weights(model)
    layers = dict(small.base_model.named_parameters())
    for parameter_name, weight in model.base_model.named_parameters():
        if weight is not model.get_input_embeddings().weight:
            assert torch.equal(weight, layers[parameter_name]), parameter_name
    ours, theirs = Vocabulary(board), Vocabulary(BOARD)
    for getter in ("get_input_embeddings", "get_output_embeddings"):
        rows, copied = getattr(model, getter)().weight, getattr(small, getter)().weight
        for token in set(ours.tokens) & set(theirs.tokens):
            assert torch.equal(rows[ours.tokens.index(token)], copied[theirs.tokens.index(token)])
        new = [ours.tokens.index(f"({row},{row})") for row in (5, 6)]
        assert not torch.equal(rows[new[0]], rows[new[1]])
        assert 0.5 < rows[new].std() / copied.std() < 2
    again = build_model(replace(config, board="6x6"), seed=3)
    load_weights(again, exported / name, board=board, seed=5)
    assert weights_digest(again) == weights_digest(model)


def test_training_starts_from_a_narrower_model(exported: Path) -> None:
    model = build_model(replace(LLAMA, hidden_size=48, num_heads=3), seed=9)
    load_weights(model, exported / "llama", board=BOARD)
    check_master_weights(model)
    for name, weight in build_model(LLAMA, seed=0).named_parameters():
        if weight.dim() == 2:
            block = tuple(slice(size) for size in weight.shape)
            assert torch.equal(model.get_parameter(name)[block], weight), name


def test_a_narrower_model_with_biases_is_refused(tmp_path: Path) -> None:
    config = transformers_config(LLAMA)
    config.attention_bias = True
    narrow: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    export_model(narrow, tmp_path / "m", facts=FACTS)
    wide = build_model(replace(LLAMA, hidden_size=48, num_heads=3), seed=9)
    with pytest.raises(ValueError, match=r"m: not the architecture of this run: .* has .*\.bias"):
        load_weights(wide, tmp_path / "m", board=BOARD)


def test_other_weights_than_described_are_named(
    exported: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that was replaced by that of another model still fits the network."""
    shutil.copytree(exported / "llama", tmp_path / "m")
    load_weights(build_model(LLAMA, seed=9), tmp_path / "m", board=BOARD)
    assert caplog.text == ""
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["model.norm.weight"] += 1
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    load_weights(build_model(LLAMA, seed=9), tmp_path / "m", board=BOARD)
    assert f"{tmp_path / 'm'}: the weights are not those that sudocot.json describes" in caplog.text


def test_training_starts_in_fp32_from_a_bf16_folder(exported: Path, tmp_path: Path) -> None:
    """Loading keeps the stored type, and training pure bf16 weights stalls."""
    half: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        exported / "llama", dtype=torch.bfloat16
    )
    half.save_pretrained(tmp_path)
    (tmp_path / "sudocot.json").write_bytes((exported / "llama" / "sudocot.json").read_bytes())
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert {p.dtype for p in plain.parameters()} == {torch.bfloat16}
    model = build_model(LLAMA, seed=9)
    load_weights(model, tmp_path, board=BOARD)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    for ours, theirs in zip(model.parameters(), half.parameters(), strict=True):
        assert torch.equal(ours, theirs.float())
    check_rotary(model, rope_theta=5000.0, rotary_dims=16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_theta": 10_000.0}, "got rotary base 5000, the run has 10000"),
        ({"hidden_size": 64}, "not the architecture of this run"),
        ({"num_layers": 1}, "not the architecture of this run"),
        ({"family": "gpt_neox"}, "weights do not match"),
    ],
)
@pytest.mark.filterwarnings("ignore:You are using a model of type")
def test_weights_of_another_network_are_refused(
    changes: dict[str, Any], message: str, exported: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_weights(
            build_model(replace(LLAMA, **changes), seed=0), exported / "llama", board=BOARD
        )


def test_truncated_weights_are_refused(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported / "llama", tmp_path / "copy")
    weights = tmp_path / "copy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="damaged or incompatible model"):
        load_weights(build_model(LLAMA, seed=0), tmp_path / "copy", board=BOARD)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("format", 2, "format: got 2, allowed is 1"), ("vocabulary_digest", "0", "vocabulary_digest")],
)
def test_facts_of_another_version_are_refused(
    field: str, value: Any, message: str, tmp_path: Path
) -> None:
    record = {"format": 1, "vocabulary_digest": LLAMA.vocabulary.digest, **asdict(FACTS)}
    (tmp_path / "sudocot.json").write_text(json.dumps(record | {field: value}))
    with pytest.raises(ValueError, match=message):
        read_facts(tmp_path)


def test_card_states_the_cut_off_and_the_size_of_the_model_that_is_published(
    toy_data: Path, tmp_path: Path
) -> None:
    """N is the smaller of the data set's and the run's; probe heads are not published."""
    config = small_config(toy_data, tmp_path / "run", budget=450, max_cot_length=200)
    assert config.board_state_weight > 0
    assert run(config) == 0
    folder = config.out / "final"
    assert TokenStore.open(toy_data).manifest.max_cot_length is None
    assert read_facts(folder).training["max_cot_length"] == 200
    stored = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    trained = read_metrics(config.out / "metrics.jsonl")[0]["num_parameters"]
    assert trained == stored
    card = (folder / "README.md").read_text()
    assert f"{stored:,}" in card
    assert "| max_cot_length | 200 |" in card
