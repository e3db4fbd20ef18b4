"""Tests of the benchmark of the engine `api`, with stubs of the server and of vLLM's client."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.bench import api_client
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.test_api_ids import serving
from tests.eval.toy_models import export, make_model


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("list") / "test.csv", make_puzzles("4x4", 6))


def test_clients_send_the_same_prompts(
    puzzles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = export(make_model("llama", max_positions=1000), tmp_path / "cot", mode="cot")
    sent = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        options = dict(
            word[2:].split("=", 1) for word in command if "=" in word and "\n" not in word
        )
        lines = Path(options["dataset-path"]).read_text().splitlines()
        sent.append([json.loads(line)["prompt"] for line in lines])
        result = {"total_output_tokens": 300, "duration": 1000.0}
        (Path(options["result-dir"]) / options["result-filename"]).write_text(json.dumps(result))
        return subprocess.CompletedProcess(command, 0)

    stub = SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(api_client, "subprocess", stub)
    with serving(str(model)) as url:
        config = api_client.Config(
            model=model, base_url=url, puzzles=puzzles, num_turns=2, out=tmp_path / "table.json"
        )
        assert api_client.main(config) == 0
    assert [len(prompts) for prompts in sent] == [6, 6]
    assert all(text.startswith("<input> (") and text.endswith(" </input>") for text in sent[0])
    baseline, ours = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert (baseline["tokens/s"], baseline["ratio"]) == (0.3, 1)
    assert ours["ratio"] == pytest.approx(ours["tokens/s"] / 0.3)


def test_segments_are_refused(puzzles: Path, tmp_path: Path) -> None:
    model = export(make_model("llama"), tmp_path / "scot")
    config = api_client.Config(model=model, base_url="http://127.0.0.1:1/v1", puzzles=puzzles)
    with pytest.raises(ValueError, match="mode scot, allowed is cot"):
        api_client.main(config)
