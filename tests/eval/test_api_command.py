"""Tests of `sudocot eval run --engine api` with a stub server: costs, kills, options."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data.runtime.digests import read_digests
from eval.engines import server as server_module
from eval.engines.text.replies import REPLIES_FILE
from eval.results.folder import EvaluationFolder
from scripts.cli.main import main
from scripts.commands.verify import verify
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.stub_server import MODEL, serving

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_FIRST_DELAY_S", 0.002)
    monkeypatch.setattr(server_module, "_LONGEST_DELAY_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("list") / "test.csv", make_puzzles("4x4", 16))


def words(url: str, puzzles: Path, out: Path, *options: str) -> list[str]:
    paths = ["--data", str(puzzles), "--out", str(out), "--lengths", str(puzzles) + ".lengths"]
    return ["eval", "run", "--model", MODEL, "--engine", "api", "--base-url", url, *paths, *options]


def test_an_evaluation_from_the_command_line(
    puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e"
    prices = ("--price-in", "2", "--price-out", "8")
    with serving() as server:
        assert main(words(server.url, puzzles, out, *prices)) == 0
        assert server.num_requests == 16
    printed = capsys.readouterr().out
    assert "accuracy, lenient parser" in printed
    assert "price, US dollars" in printed
    folder = EvaluationFolder.open(out)
    config, summary = folder.config, folder.summary
    assert (config.mode, config.engine, config.precision.name) == ("text", "api", "unknown")
    assert config.protocol is not None
    assert (config.protocol.temperature, config.protocol.num_samples) == (0.0, 1)
    assert len(config.protocol.digest) == 64
    assert config.model.num_parameters is None
    assert summary.answers is not None
    assert summary.answers.lenient.num_solved >= summary.accuracy.num_solved > 0
    tokens = summary.cost.num_prompt_tokens, summary.num_new_tokens
    assert summary.cost.usd == pytest.approx((2 * tokens[0] + 8 * tokens[1]) / 1e6)
    assert sum(summary.finish_reasons.values()) == 16
    for path in out.iterdir():
        assert KEY not in path.read_text()
    assert verify(out) == ("evaluation", [])
    assert REPLIES_FILE in read_digests(out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main(["eval", "score", str(out)]) == 0
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert after == before
    # The port of the server may change; a changed prompt may not.
    with serving() as server:
        assert main(words(server.url, puzzles, out, *prices)) == 0
        assert server.num_requests == 0
        assert main(words(server.url, puzzles, out, "--shots", "2")) == 2
    assert "differs in protocol.digest" in capsys.readouterr().err
    replies = out / REPLIES_FILE
    replies.write_text(replies.read_text().replace("Let me see", "Let me say"))
    assert verify(out)[1][0] == f"{replies}: damaged, content does not match its digest"
    assert main(["eval", "score", str(out)]) == 2


def test_the_report_shows_answers_in_text(puzzles: Path, tmp_path: Path) -> None:
    out = tmp_path / "e"
    with serving() as server:
        assert main(words(server.url, puzzles, out, "--samples", "2", "--price-out", "1")) == 0
    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    header = (tmp_path / "report" / "leaderboard.csv").read_text().splitlines()[0].split(",")
    assert {"lenient", "right_cells", "pass_at_1", "pass_at_k", "usd_per_puzzle"} <= set(header)


@pytest.mark.parametrize("victim", ["client", "server"])
def test_kill_9_of_either_side(victim: str, puzzles: Path, tmp_path: Path) -> None:
    """Nothing that was answered is lost, and nothing that was answered and kept is asked twice."""
    main(["data", "lengths", str(puzzles), "--out", str(puzzles) + ".lengths"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    out = tmp_path / "e"
    stub = [sys.executable, "-m", "tests.eval.stub_server", str(port), "0.15"]
    url = f"http://127.0.0.1:{port}/v1"
    options = ("--num-slots", "2", "--max-retries", "1", "--timeout-s", "5")
    client = [sys.executable, "-m", "sudocot_cli", *words(url, puzzles, out, *options)]
    with subprocess.Popen(stub, stdout=subprocess.PIPE) as served:
        try:
            assert served.stdout is not None
            served.stdout.readline()
            with subprocess.Popen(client, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as asking:
                path = out / REPLIES_FILE
                deadline = time.monotonic() + 100
                while not path.exists() or path.read_bytes().count(b"\n") < 4:
                    assert time.monotonic() < deadline
                    assert asking.poll() is None, asking.communicate()
                    time.sleep(0.01)
                (asking if victim == "client" else served).send_signal(signal.SIGKILL)
                _, errors = asking.communicate(timeout=100)
        finally:
            served.kill()
    if victim == "server":
        assert asking.returncode == 2
        assert "sudocot: error: " in errors.decode().splitlines()[-1]
    kept = path.read_bytes().count(b"\n")
    assert 4 <= kept < 16
    with serving() as server:
        assert main(words(server.url, puzzles, out, *options)) == 0
        assert server.num_requests == 16 - kept
    assert EvaluationFolder.open(out).is_complete
    samples = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert len(samples) == len(set(samples)) == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--engine", "segment"],
            "no such folder, and no name of `sudocot models`, so it",
        ),
        (["--protocol", "ids"], "no sudocot.json, so not a model folder of sudocot"),
        (["--samples", "2", "--temperature", "0"], "temperature: got 0 with 2 samples"),
        (["--shots", "9"], "shots: got 9, allowed is 0 to 4"),
        (["--base-url", "localhost"], "base_url: got 'localhost', allowed are http"),
        (["--engine-args", "x"], "engine_args: got 'x', allowed is key=value"),
        (["--timeout-s", "0"], "timeout_s: got 0"),
        (
            ["--precision", "bf16"],
            "precision: got bf16, allowed with engine api is the default, fp32",
        ),
        (["--device", "cpu"], "device: got cpu, allowed with engine api is the default, auto"),
    ],
)
def test_wrong_options_are_one_line(
    options: list[str],
    message: str,
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*words("http://127.0.0.1:9/v1", puzzles, tmp_path / "e"), *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_key_and_no_url(
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    command = words("http://127.0.0.1:9/v1", puzzles, tmp_path / "e")
    del command[command.index("--base-url") : command.index("--base-url") + 2]
    assert main(command) == 2
    assert "base_url: got none and OPENAI_API_KEY is not set" in capsys.readouterr().err
    assert "api" not in {thread.name for thread in threading.enumerate()}
