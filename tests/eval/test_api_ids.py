"""Tests of the engine `api` for token ids, with a stub of `vllm serve`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.text import tokens_to_text
from eval.engines import server as server_module
from eval.engines.api import read_ids
from eval.engines.server import Completion
from eval.results.folder import EvaluationFolder
from scripts.cli.main import main
from solver.mrv.tracer import resume
from solver.vocabulary import DECODING_STOPS, Vocabulary
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.toy_models import BOARD, export, make_model

WORDS = Vocabulary(BOARD).tokens
IDS = {word: token for token, word in enumerate(WORDS)}


class Solver(BaseHTTPRequestHandler):
    """Continues every prompt as the solver does, up to the limit."""

    protocol_version = "HTTP/1.1"
    model = ""
    unknown_word = ""

    def log_message(self, *args: Any) -> None:
        """Be quiet."""

    def do_GET(self) -> None:
        """List the model."""
        model = {"id": self.model, "object": "model", "created": 0, "owned_by": "stub"}
        self._send({"object": "list", "data": [{**model, "max_model_len": 1000}]})

    def do_POST(self) -> None:
        """Continue a prompt."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stop_token_ids"] == list(DECODING_STOPS)
        assert body["temperature"] == 0
        assert not body["skip_special_tokens"]
        prompt = np.array([IDS[word] for word in body["prompt"].split()], dtype=np.uint8)
        tokens = resume(BOARD, prompt).tokens[: body["max_tokens"]]
        is_stopped = int(tokens[-1]) in DECODING_STOPS
        text = tokens_to_text(BOARD, tokens) + self.unknown_word
        choice = {"index": 0, "text": text, "finish_reason": "stop" if is_stopped else "length"}
        self._send({"id": "x", "object": "text_completion", "created": 0, "choices": [choice]})

    def _send(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(model: str, *, unknown_word: str = "") -> Iterator[str]:
    handler = type("Handler", (Solver,), {"model": model, "unknown_word": unknown_word})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "cot"
    return export(make_model("llama", max_positions=1000), folder, mode="cot")


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("list") / "test.csv", make_puzzles("4x4", 6))


def words(model: Path, url: str, puzzles: Path, out: Path, *options: str) -> list[str]:
    paths = ["--model", str(model), "--data", str(puzzles), "--out", str(out)]
    return ["eval", "run", "--engine", "api", "--base-url", url, *paths, *options]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_FIRST_DELAY_S", 0.002)


def test_a_served_solver_solves_all_puzzles(model: Path, puzzles: Path, tmp_path: Path) -> None:
    with serving(str(model)) as url:
        assert main(words(model, url, puzzles, tmp_path / "e", "--keep-tokens")) == 0
    folder = EvaluationFolder.open(tmp_path / "e")
    assert folder.summary.accuracy.num_solved == 6
    assert (folder.config.engine, folder.config.mode) == ("api", "cot")
    assert folder.config.protocol is None
    assert folder.config.sessions[0].device == url
    for puzzle in folder.sample:
        [segment] = folder.generated([puzzle.key])[puzzle.key]
        num_given = 2 * sum(char != "." for char in puzzle.givens) + 2
        assert len(segment) == puzzle.cot_length - num_given


def test_the_limit_ends_a_puzzle_at_the_same_token(
    model: Path, puzzles: Path, tmp_path: Path
) -> None:
    with serving(str(model)) as url:
        options = ("--max-new-tokens", "7")
        assert main(words(model, url, puzzles, tmp_path / "e", *options)) == 0
    summary = EvaluationFolder.open(tmp_path / "e").summary
    assert (summary.finish_reasons["total_cap"], summary.num_new_tokens) == (6, 42)


def test_another_model_or_another_vocabulary_is_one_line(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving("other") as url:
        assert main(words(model, url, puzzles, tmp_path / "e")) == 2
        assert f"{url} serves other" in capsys.readouterr().err
        options = ("--engine-args", "model=other")
        assert main(words(model, url, puzzles, tmp_path / "e", *options)) == 0
    with serving(str(model), unknown_word=" cat") as url:
        assert main(words(model, url, puzzles, tmp_path / "x")) == 2
        assert "got 'cat', which is no token of a 4x4 board" in capsys.readouterr().err


def test_no_key_and_no_url_leaves_no_thread(
    model: Path, puzzles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    command = words(model, "", puzzles, tmp_path / "e")
    del command[4:6]
    assert main(command) == 2
    assert "api" not in {thread.name for thread in threading.enumerate()}


def test_ids_survive_the_text() -> None:
    ids = np.arange(len(WORDS), dtype=np.uint8)
    reply = Completion(tokens_to_text(BOARD, ids), "stop", False, 0, 0)
    np.testing.assert_array_equal(read_ids(BOARD, reply), ids)
