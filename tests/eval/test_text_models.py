"""Tests of the text protocol on Hugging Face folders that are not from sudocot."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.model_format.facts import FACTS_FILE
from data.model_format.precision import get_precision
from eval.commands.text_run import uses_text
from eval.engines.options import EngineOptions
from eval.engines.text.engine import Prompt, ReplySampling
from eval.engines.text.hf import HfTextModel
from eval.engines.text.language_model import LanguageModel, PromptEncoder
from eval.engines.text.replies import REPLIES_FILE, StoredReply
from eval.results.folder import EvaluationFolder
from eval.text_protocol.prompt import TextProtocol, load_examples
from scripts.cli.main import main
from solver.boards import get_board
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.language_models import write_language_model

BOARD = get_board("4x4")


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("models") / "chat")


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "base"
    return write_language_model(folder, has_template=False, max_positions=300)


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("list") / "test.csv", make_puzzles("4x4", 3))


def prompts(seed: int, *, limit: int = 6) -> list[Prompt]:
    return [
        Prompt(
            key=f"{index:016x}",
            sample=0,
            givens=example.givens,
            protocol=TextProtocol(board=BOARD, num_shots=shots),
            max_new_tokens=limit,
            seed=seed + index,
        )
        for index, (example, shots) in enumerate(
            zip(load_examples(BOARD)[:3], (0, 1, 0), strict=True)
        )
    ]


def generate(
    folder: Path, *, slots: int, temperature: float, seed: int = 0, top_p: float = 1.0
) -> dict[str, str]:
    options = EngineOptions(
        precision=get_precision("fp32"), device=torch.device("cpu"), num_slots=slots
    )
    sampling = ReplySampling(num_samples=1, temperature=temperature, top_p=top_p)
    model = HfTextModel.load(str(folder), options, sampling=sampling, form="auto")
    replies: list[StoredReply] = list(model.generate(prompts(seed)))
    assert all(reply.num_new_tokens <= 6 for reply in replies)
    return {reply.key: reply.reply.text for reply in replies}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_replies_do_not_depend_on_the_batch(chat_model: Path, temperature: float) -> None:
    replies = [generate(chat_model, slots=slots, temperature=temperature) for slots in (1, 3)]
    assert replies[0] == replies[1]


def test_settings_of_the_folder_do_not_apply(chat_model: Path, tmp_path: Path) -> None:
    """Such as the repetition penalty, with which many chat models are published."""
    folder = shutil.copytree(chat_model, tmp_path / "model")
    path = folder / "generation_config.json"
    settings = {"repetition_penalty": 50.0, "no_repeat_ngram_size": 1, "num_beams": 2}
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    replies = [generate(model, slots=3, temperature=0.0) for model in (chat_model, folder)]
    assert replies[0] == replies[1]


def test_weights_in_a_second_format_are_not_counted(chat_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(chat_model, tmp_path / "model")
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")
    ours, copied = LanguageModel.open(str(chat_model)), LanguageModel.open(str(folder))
    assert copied.num_parameters == ours.num_parameters
    assert copied.digest == ours.digest


def stored_replies(model: Path, *, slots: int, limit: int) -> list[StoredReply]:
    """Sampled replies by key, without their times."""
    options = EngineOptions(
        precision=get_precision("fp32"), device=torch.device("cpu"), num_slots=slots
    )
    sampling = ReplySampling(temperature=1.0)
    loaded = HfTextModel.load(str(model), options, sampling=sampling, form="auto")
    made = sorted(loaded.generate(prompts(0, limit=limit)), key=lambda reply: reply.key)
    return [replace(reply, seconds=0.0) for reply in made]


def test_each_reply_is_bounded_by_its_own_prompt(base_model: Path) -> None:
    """The longest prompt of a batch bounded all of its replies."""
    replies = [stored_replies(base_model, slots=slots, limit=1000) for slots in (1, 3)]
    assert replies[0] == replies[1]
    lengths = [reply.num_prompt_tokens for reply in replies[0]]
    totals = [reply.num_prompt_tokens + reply.num_new_tokens for reply in replies[0]]
    assert len(set(lengths)) > 1
    assert max(totals) == 300
    assert [reply.reply.is_truncated for reply in replies[0]] == [t == 300 for t in totals]


def test_padding_after_a_stop_string_is_not_counted(
    chat_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PromptEncoder, "stop_strings", lambda *_: ["s"])
    folder = shutil.copytree(chat_model, tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["pad_token"] = "<|im_start|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    replies = [stored_replies(folder, slots=slots, limit=150) for slots in (1, 3)]
    assert replies[0] == replies[1]
    assert len({reply.num_new_tokens for reply in replies[0]}) == 3


def test_samples_depend_on_the_seed(chat_model: Path) -> None:
    replies = [
        generate(chat_model, slots=3, temperature=1.0, seed=seed, top_p=0.9) for seed in (0, 9)
    ]
    assert replies[0] != replies[1]


def test_an_evaluation_with_the_chat_template(
    chat_model: Path, puzzles: Path, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    command = ["eval", "run", "--model", str(chat_model), "--engine", "hf", "--device", "cpu"]
    command += ["--data", str(puzzles), "--out", str(out), "--max-new-tokens", "5"]
    assert main(command) == 0
    config = EvaluationFolder.open(out).config
    assert config.protocol is not None
    assert config.protocol.form == "chat"
    assert (config.model.name, config.model.model_type) == ("chat", "qwen3")
    assert config.model.digest == LanguageModel.open(str(chat_model)).digest
    assert config.model.num_parameters is not None
    assert config.model.num_parameters > 0
    assert sum(EvaluationFolder.open(out).summary.finish_reasons.values()) == 3
    replies = (out / REPLIES_FILE).read_text().splitlines()
    assert [json.loads(line)["num_new_tokens"] for line in replies] == [5, 5, 5]


def test_without_a_chat_template_the_prompt_is_one_string(
    base_model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e"
    command = ["eval", "run", "--model", str(base_model), "--engine", "hf", "--device", "cpu"]
    command += ["--data", str(puzzles), "--out", str(out)]
    assert main([*command, "--prompt-form", "chat"]) == 2
    assert "form: got chat, the tokenizer of base has no chat template" in capsys.readouterr().err
    assert main([*command, "--max-new-tokens", "1000"]) == 0  # as far as the positions go
    folder = EvaluationFolder.open(out)
    assert folder.config.protocol is not None
    assert folder.config.protocol.form == "plain"
    assert (
        folder.summary.finish_reasons["truncated"] + folder.summary.finish_reasons["malformed"] == 3
    )


def test_a_prompt_beyond_the_positions_is_one_line(
    base_model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "run", "--model", str(base_model), "--engine", "hf", "--device", "cpu"]
    command += ["--data", str(puzzles), "--out", str(tmp_path / "e"), "--shots", "4"]
    assert main(command) == 2
    assert "the model takes 300 positions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"num_hidden_layers": "2"}),
        ("config.json", {"hidden_size": -48}),
        ("config.json", {"architectures": [None]}),
        ("config.json", {"rope_parameters": {"rope_type": "spiral"}}),
        ("tokenizer.json", {"model": {"type": "none"}}),
        ("generation_config.json", {"eos_token_id": "end"}),
    ],
)
def test_malformed_folders_are_one_line(
    name: str,
    changes: dict[str, Any],
    chat_model: Path,
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(chat_model, tmp_path / "model")
    content = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps({**content, **changes}))
    command = ["eval", "run", "--model", str(folder), "--engine", "hf", "--device", "cpu"]
    command += ["--data", str(puzzles), "--out", str(tmp_path / "e"), "--max-new-tokens", "6"]
    code = main(command)
    error = capsys.readouterr().err
    assert "internal error" not in error
    assert "Traceback" not in error
    # transformers ignores some malformed fields.
    assert code == 0 or str(folder) in error.splitlines()[-1], error


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "header too small"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "header too large"),
        ((9).to_bytes(8, "little") + b'{"a": {}}', "missing field"),
    ],
)
def test_damaged_weights_are_one_line(
    content: bytes, reason: str, chat_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(chat_model, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=rf"model\.safetensors: damaged weights: .*{reason}"):
        _ = LanguageModel.open(str(folder)).num_parameters


def test_a_run_folder_names_its_model(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / FACTS_FILE).touch()
    for engine in ("segment", "hf"):
        with pytest.raises(ValueError, match=r"is a run folder, its model is .*final"):
            uses_text(str(tmp_path), engine=engine, protocol="auto")


def test_error_of_a_folder_without_facts_lists_the_options(
    chat_model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "run", "--model", str(chat_model)]
    command += ["--data", str(puzzles), "--out", str(tmp_path / "e")]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "no sudocot.json, so it needs the text protocol, with --engine hf, vllm, api" in error
    assert "docs/your-model.md" in error
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((chat_model / name).read_bytes())
    assert main([*command[:3], str(bare), "--engine", "hf", *command[4:]]) == 2
    assert "no tokenizer for the text protocol, and no sudocot.json" in capsys.readouterr().err
    missing = [*command[:3], str(tmp_path / "none"), "--engine", "hf", *command[4:]]
    assert main(missing) == 2
    assert "no such folder, and not on the hub" in capsys.readouterr().err


def test_gumbel_noise_samples_the_softmax() -> None:
    from eval.engines.text.hf import _GumbelNoise

    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]])).repeat(3000, 1)
    noise = _GumbelNoise([torch.Generator().manual_seed(seed) for seed in range(3000)])
    chosen = noise(torch.zeros(3000, 1), logits).argmax(dim=-1).numpy()
    shares = np.bincount(chosen, minlength=3) / 3000
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.04)
