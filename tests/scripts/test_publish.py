"""Tests of publishing: checks, uploaded files, loading without sudocot."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import (
    DatasetCard,
    EvalResult,
    HfApi,
    ModelCard,
    parse_eval_result_entries,
)

from data.card import dataset_card
from data.model_format.facts import ModelFacts
from scripts.cli.main import main
from scripts.publish.publish import upload
from training.checkpoints.export import export_model
from training.models.build import build_model
from training.models.families import ModelConfig

FRESH_PROCESS = """
import sys
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
data, folder = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
assert model.generation_config.eos_token_id == [6, 4]
for config in ("cot", "scot"):
    rows = load_dataset(data, config, split="train")
    text = AutoTokenizer.from_pretrained(data).decode(rows[0]["input_ids"])
    assert tokenizer(text).input_ids == list(rows[0]["input_ids"]), text
    print(config, len(rows), text.split()[0])
assert not {"training", "solver", "data", "eval"} & sys.modules.keys()
"""


@pytest.fixture(scope="module")
def model_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "final"
    config = ModelConfig(board="4x4", hidden_size=32, num_layers=1, num_heads=2, max_positions=256)
    facts = ModelFacts(
        board="4x4",
        mode="cot",
        trace_rule="rule-1",
        segment_tokens=None,
        data_digest="0123",
        precision=None,
    )
    export_model(build_model(config, seed=0), folder, facts=facts)
    card = ModelCard((folder / "README.md").read_text())
    card.data.model_name = "toy"
    card.data.eval_results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="you/sudoku",
            dataset_name="sudoku",
            metric_type="accuracy",
            metric_value=0.5,
        )
    ]
    (folder / "README.md").write_text(str(card))
    (folder / ".eval_results").mkdir()
    entry = {"dataset": {"id": "you/sudoku", "task_id": "default"}, "value": 0.5}
    (folder / ".eval_results" / "toy.yaml").write_text(yaml.safe_dump([entry]))
    return folder


@pytest.fixture
def model(model_source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_source, tmp_path / "final"))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    build = ["data", "build", "--generate", "12", "--board", "4x4", "--workers", "1"]
    assert main([*build, "--out", str(folder / "cot")]) == 0
    scot = ["--mode", "scot", "--segment-tokens", "8", "--out", str(folder / "scot")]
    assert main([*build, *scot]) == 0
    return [str(folder / "cot"), str(folder / "scot")]


class LocalHub:
    """Keeps repositories in folders, as the hub would."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_repo(
        self, repo_id: str, *, repo_type: str, private: bool | None, exist_ok: bool
    ) -> None:
        folder = self.root / repo_type / repo_id
        folder.mkdir(parents=True, exist_ok=exist_ok)
        (folder / ".private").write_text(str(private))

    def upload_folder(
        self,
        *,
        repo_id: str,
        repo_type: str,
        folder_path: Path,
        commit_message: str,
        delete_patterns: list[str],
    ) -> None:
        assert commit_message
        folder = self.root / repo_type / repo_id
        for path in folder.rglob("*"):
            if any(fnmatch(path.name, pattern) for pattern in delete_patterns):
                path.unlink()
        shutil.copytree(folder_path, folder, dirs_exist_ok=True)


def publish_model(folder: Path, *options: str) -> int:
    return main(["publish", "model", str(folder), "--repo", "you/toy", *options])


def refusals(text: str) -> list[str]:
    start = "sudocot: refused: "
    return [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]


def test_prepared_folders_load_without_sudocot(
    model: Path, datasets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--license", "mit", "--dry-run", "--out"]
    (model / "optimizer.pt").write_bytes(b"state")
    assert publish_model(model, *options, str(tmp_path / "m")) == 0
    data = ["publish", "dataset", *datasets, "--repo", "you/traces"]
    assert main([*data, *options, str(tmp_path / "d")]) == 0
    printed = capsys.readouterr()
    assert "optimizer.pt" not in printed.out
    assert "model.safetensors" in printed.out

    card = ModelCard.load(tmp_path / "m" / "README.md")
    assert card.data.license == "mit"
    assert [result.metric_value for result in card.data.eval_results or []] == [0.5]
    results = (tmp_path / "m" / ".eval_results" / "toy.yaml").read_text()
    assert parse_eval_result_entries(yaml.safe_load(results))[0].value == 0.5
    data_card = DatasetCard.load(tmp_path / "d" / "README.md")
    assert data_card.data.license == "mit"
    assert 'load_dataset("you/traces", "cot"' in data_card.text
    for folder in ("m", "d"):
        command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
        subprocess.run(command, cwd=tmp_path / folder, check=True)
    shown = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(tmp_path / "d"), str(tmp_path / "m")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[::2] for line in shown.stdout.splitlines()] == [
        ["cot", "<input>"],
        ["scot", "<input>"],
    ]


def test_upload_replaces_the_data_of_an_earlier_one(tmp_path: Path) -> None:
    hub = LocalHub(tmp_path / "hub")
    for number, files in enumerate(
        (["a-0-of-2.parquet", "a-1-of-2.parquet"], ["a-0-of-1.parquet"])
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in files:
            (folder / name).write_bytes(b"rows")
        upload(hub, folder, repo="you/data", repo_type="dataset", private=True)
    there = tmp_path / "hub" / "dataset" / "you" / "data"
    assert {path.name for path in there.iterdir()} == {".private", "a-0-of-1.parquet"}
    assert (there / ".private").read_text() == "True"


def test_with_a_token_it_is_uploaded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: LocalHub(tmp_path / "hub"))
    assert publish_model(model, "--license", "mit") == 0
    there = tmp_path / "hub" / "model" / "you" / "toy"
    assert {path.name for path in there.glob("*.*")} >= {"README.md", "model.safetensors"}
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_hub_that_does_not_answer_is_an_error_in_one_line(
    model_source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    hub = HfApi(endpoint=address, token="hf_token")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    words = ("publish", "model", str(model_source), "--repo", "you/toy", "--license", "mit")
    assert main(words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("sudocot: error: the hub cannot be reached: ")
    assert "Connection refused" in error


def test_without_a_token_the_folder_is_kept(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    out = tmp_path / "out"
    assert publish_model(model, "--license", "mit", "--out", str(out)) == 1
    assert "not uploaded: no token" in caplog.text
    assert (out / "SHA256SUMS").exists()
    assert publish_model(model, "--license", "mit", "--out", str(out)) == 2  # it exists


def test_rebuild_replaces_prepared_folders_alone(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--rebuild` removed whatever was there: the model itself, with what is not published."""
    (model / "optimizer.pt").write_bytes(b"state")
    options = ["--license", "mit", "--dry-run", "--rebuild", "--out"]
    assert publish_model(model, *options, str(model)) == 2
    assert "contains files but no SHA256SUMS" in capsys.readouterr().err
    assert (model / "optimizer.pt").exists()
    out = model.parent / "upload"
    for _ in range(2):
        assert publish_model(model, *options, str(out)) == 0
    link = model.parent / "link"
    link.symlink_to(out)
    assert publish_model(model, *options, str(link)) == 0
    assert link.is_symlink()


def test_rebuild_does_not_replace_a_data_set(
    datasets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data sets have a file of digests, too."""
    source = tmp_path / "source"
    shutil.copytree(datasets[0], source)
    options = ["--repo", "you/x", "--license", "mit", "--dry-run", "--rebuild"]
    assert main(["publish", "dataset", str(source), *options, "--out", str(source)]) == 2
    assert "contains files but no README.md; it is not replaced" in capsys.readouterr().err
    assert (source / "manifest.json").exists()


@pytest.mark.parametrize(("host", "is_private"), [("sudoku", False), ("sudoku-1.lab", True)])
def test_a_host_name_may_be_a_word_of_the_card(
    model: Path, host: str, is_private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = model / "README.md"
    card.write_text(card.read_text() + "\nsudoku, trained on sudoku-1.lab\n")
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert publish_model(model, "--license", "mit", "--dry-run") == int(is_private)


def _edit_json(name: str, **values: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return edit


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


FRONT = "---\nlicense: mit\n"
BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no card": (lambda m: (m / "README.md").unlink(), "README.md: missing"),
    "no metadata": (_write("README.md", "# card\n"), "README.md: no metadata"),
    "broken metadata": (_write("README.md", "---\na: [\n---\n"), "README.md: malformed metadata"),
    "model index": (
        _write("README.md", f"{FRONT}model-index: 3\n---\n"),
        "README.md: malformed meta",
    ),
    "license": (_write("README.md", "---\nlicense: M I T\n---\n"), "README.md: license: got 'M I"),
    "path": (
        _write("README.md", f"{FRONT}---\nsee /home/me/x\n"),
        "README.md:4: contains '/home/me/x'",
    ),
    "results": (
        _write(".eval_results/a.yaml", "3"),
        ".eval_results/a.yaml: invalid evaluation results",
    ),
    "no tokenizer": (lambda m: (m / "tokenizer.json").unlink(), "tokenizer.json: missing"),
    "other stops": (
        _edit_json("generation_config.json", eos_token_id=2),
        "generation_config.json: eos_token_id: got 2, allowed is [6, 4]",
    ),
    "broken stops": (_write("generation_config.json", "[]"), "generation_config.json: got list"),
    "broken tokenizer": (_write("tokenizer.json", "{}"), "tokenizer.json: cannot be read: Model"),
    "binary card": (
        lambda m: (m / "README.md").write_bytes(b"\xff"),
        "README.md: 'utf-8' codec can't decode",
    ),
    "other digest": (
        _edit_json("sudocot.json", weights_digest="0"),
        "sudocot.json: weights_digest: differs from the digest of the weights",
    ),
    "pickled weights": (
        lambda m: (m / "model.safetensors").rename(m / "pytorch_model.bin"),
        "neither model.safetensors nor",
    ),
    "other words": (
        lambda m: _edit_vocabulary(m / "tokenizer.json"),
        "tokenizer.json: not the vocabulary of 4x4",
    ),
}


def _edit_vocabulary(path: Path) -> None:
    path.write_text(path.read_text().replace('"(1,1)"', '"(9,9)"'))


@pytest.mark.parametrize("name", BREAKS)
def test_a_model_is_refused(model: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    breaks, problem = BREAKS[name]
    ModelCard(f"{FRONT}---\ntext\n").save(model / "README.md")
    breaks(model)
    assert publish_model(model, "--dry-run") == 1
    (refusal,) = refusals(capsys.readouterr().err)
    assert refusal.startswith(problem)


def test_all_refusals_come_at_once(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-7.cluster")
    (model / "README.md").write_text("---\ntags: [a]\n---\ntrained on gpu-node-7\n")
    (model / "tokenizer_config.json").unlink()
    _edit_json("generation_config.json", eos_token_id=2)(model)
    assert publish_model(model, "--dry-run") == 1
    assert [line.split(":")[0] for line in refusals(capsys.readouterr().err)] == [
        "tokenizer_config.json",
        "README.md",
        "README.md",
        "generation_config.json",
    ]


def test_data_set_without_license_is_refused(
    datasets: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["publish", "dataset", *datasets, "--repo", "you/traces", "--dry-run"]
    assert main(command) == 1
    (refusal,) = refusals(capsys.readouterr().err)
    assert refusal.startswith("README.md: states no license")
    assert main([*command, "--license", "unknown"]) == 0


def test_a_data_set_is_refused_that_does_not_load(
    datasets: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def card_of_nothing(*args: Any, **options: Any) -> str:
        return dataset_card(*args, **options).replace("scot/train-*", "scot/test-*")

    monkeypatch.setattr("data.export.dataset_card", card_of_nothing)
    command = ["publish", "dataset", *datasets, "--repo", "you/traces", "--license", "mit"]
    assert main([*command, "--dry-run"]) == 1
    (refusal,) = refusals(capsys.readouterr().err)
    assert refusal.startswith("scot train: cannot be loaded")


@pytest.mark.parametrize("repo", ["toy", "you/toy/x", "you/..", "you/a b"])
def test_names_that_the_hub_does_not_take(
    model: Path, capsys: pytest.CaptureFixture[str], repo: str
) -> None:
    assert main(["publish", "model", str(model), "--repo", repo]) == 2
    assert "repo" in capsys.readouterr().err.lower()
