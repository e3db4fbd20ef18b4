"""Tests of imported logs of inspect_ai and lm-evaluation-harness."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eval.harnesses.documents import Document, load_documents, question_of
from eval.predictions.logs import read_member
from eval.predictions.read import read_predictions
from eval.results.folder import EvaluationFolder
from eval.text_protocol.prompt import TextProtocol
from scripts.cli.main import main
from solver.puzzles import format_grid
from tests.eval.fake_engine import BOARD
from tests.eval.stub_server import planned_answer, planned_kind
from tests.eval.test_predictions import GIVENS


def log_samples(folder: Path) -> list[tuple[Document, str, str]]:
    """Document, question and planned reply of each puzzle."""
    puzzles = folder / "puzzles.txt"
    puzzles.write_text("\n".join(format_grid(BOARD, givens) for givens in GIVENS))
    replies = [planned_answer(BOARD, givens) for givens in GIVENS]
    return [
        (document, question_of(document), reply)
        for document, reply in zip(load_documents(puzzles), replies, strict=True)
    ]


def write_inspect_log(folder: Path) -> Path:
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        for number, (document, question, reply) in enumerate(log_samples(folder)):
            message = {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "1"}]}
            message["content"].append({"type": "text", "text": reply})  # type: ignore[attr-defined]
            sample = {
                "id": number,
                "epoch": 1,
                "input": [{"role": "user", "content": question}],
                "metadata": document,
                "output": {
                    "choices": [{"message": message, "stop_reason": "stop"}],
                    "usage": {"input_tokens": 100, "output_tokens": 20},
                },
                "working_time": 0.5,
            }
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
        archive.writestr("header.json", "{}")
    return path


def write_lm_eval_samples(folder: Path) -> Path:
    path = folder / "samples_sudocot_2026-11-28.jsonl"
    chat = [
        {
            "doc_id": number,
            "doc": document,
            "arguments": {
                "gen_args_0": {"arg_0": [json.dumps([{"role": "user", "content": question}])]}
            },
            "resps": [[reply]],
        }
        for number, (document, question, reply) in enumerate(log_samples(folder))
    ]
    path.write_text("".join(f"{json.dumps(sample)}\n" for sample in chat))
    return path


def test_samples_that_ended_with_an_error_are_counted(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_inspect_log(tmp_path)) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        samples = [json.loads(archive.read(name)) for name in names]
    failed = samples[3]
    failed["output"], failed["error"] = {"choices": []}, {"message": "429:\ntoo many requests"}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "samples": samples}))
    read = read_predictions([path])
    assert len(read.predictions) == len(GIVENS) - 1
    assert read.errors == [f"{path}:4: the sample ended with an error: 429: too many requests"]


def test_inspect_logs_may_be_json(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_inspect_log(tmp_path)) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        samples = [json.loads(archive.read(name)) for name in names]
    path = tmp_path / "log.JSON"
    path.write_text(json.dumps({"eval": {}, "samples": samples}))
    assert len(read_predictions([path]).predictions) == len(GIVENS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_shots": 1}, "num_shots: got 1, allowed is that of the first sample, 0"),
        ({"num_shots": 9}, "num_shots: got 9, allowed are 0 to 4"),
        ({"num_shots": "none"}, "invalid literal for int"),
        ({"board": "5x5"}, "board '5x5': allowed are"),
        ({"givens": "12"}, ""),
        (None, "Expecting"),
    ],
)
def test_errors_of_samples_state_the_line(
    changes: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    path = write_lm_eval_samples(tmp_path)
    lines = path.read_text().splitlines()
    sample = json.loads(lines[1])
    sample["doc"].update(changes or {})
    last = "{" if changes is None else json.dumps(sample)
    path.write_text("\n".join([lines[0], "", last]))
    with pytest.raises(ValueError, match=re.escape(f"{path}:3: {message}")):
        read_predictions([path])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"working_time": -3}, "working_time: got -3.0, allowed are numbers of at least 0"),
        ({"working_time": "nan"}, "working_time: got nan"),
        ({"output": {"choices": [], "usage": {"output_tokens": -3}}}, "output_tokens: got -3.0"),
        (None, "not a sample of a task of sudocot"),
    ],
)
def test_malformed_samples_of_inspect_state_the_place(
    changes: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(write_inspect_log(tmp_path)) as archive:
        sample = json.loads(archive.read("samples/0_epoch_1.json"))
    path = tmp_path / "log.json"
    samples = [1] if changes is None else [sample | changes]
    path.write_text(json.dumps({"eval": {}, "samples": samples}))
    with pytest.raises(ValueError, match=re.escape(f"{path}:1: {message}")):
        read_predictions([path])


def test_a_missing_reply_is_empty(tmp_path: Path) -> None:
    path = write_lm_eval_samples(tmp_path)
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    samples[0]["resps"] = [[None]]
    path.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    reply = read_predictions([path]).predictions[0].reply
    assert reply is not None
    assert reply.text == ""


def test_damaged_members_of_a_log_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/1.json", "0" * 100)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"samples/1.json") + len("samples/1.json")] = 0xFF
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="not a log of inspect_ai"):
        read_predictions([path])


def test_zstd_members_of_an_archive_are_read(tmp_path: Path) -> None:
    """inspect_ai compresses its logs so, and zipfile of Python 3.11 refuses them."""
    content = b"0123456789" * 50
    compressed = pa.compress(content, codec="zstd", asbytes=True)
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/1.json", compressed)
    raw = bytearray(path.read_bytes())
    central = raw.index(b"PK\x01\x02")
    for method, size in ((8, 22), (central + 10, central + 24)):
        raw[method : method + 2] = (93).to_bytes(2, "little")
        raw[size : size + 4] = len(content).to_bytes(4, "little")
    path.write_bytes(raw)
    with zipfile.ZipFile(path) as archive:
        assert read_member(archive, "samples/1.json") == content
    path.write_bytes(bytes(raw).replace(compressed, bytes(len(compressed))))
    with zipfile.ZipFile(path) as archive, pytest.raises(zipfile.BadZipFile):
        read_member(archive, "samples/1.json")


@pytest.mark.parametrize("write", [write_inspect_log, write_lm_eval_samples])
def test_logs_of_harnesses_are_scored_again(
    write: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path), tmp_path / "e"
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(out)]) == 0
    folder = EvaluationFolder.open(out)
    assert folder.config.protocol is not None
    assert folder.config.protocol.digest == TextProtocol(board=BOARD).digest
    kinds = [planned_kind(BOARD, givens) for givens in GIVENS]
    assert folder.summary.accuracy.num_solved == kinds.count("solved")
    assert folder.summary.answers is not None
    assert folder.summary.answers.lenient.num_solved == kinds.count("solved") + kinds.count("loose")
    before = (out / "results.jsonl").read_bytes()
    assert main(["eval", "score", str(out)]) == 0
    assert (out / "results.jsonl").read_bytes() == before
    path.write_bytes(path.read_bytes().replace(b"Fill in", b"Please fill in"))
    if write is write_lm_eval_samples:
        capsys.readouterr()
        assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "x")]) == 2
        assert "not that of this version of the text protocol" in capsys.readouterr().err
