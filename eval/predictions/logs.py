"""Logs of `inspect_ai` and lm-evaluation-harness for the tasks of `eval.harnesses`.

Replies are scored again from their text. The puzzle is read from the metadata of a sample (inspect)
or from its document (lm-eval), and the prompt must be that of the text protocol.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.predictions.records import Prediction, PredictionFile
from eval.predictions.tables import Row, jsonl_rows, read_cells, read_number
from eval.text_protocol.parse import message_text
from eval.text_protocol.prompt import MAX_SHOTS, TextProtocol
from eval.text_protocol.score import Reply
from solver.boards import Board, Grid, get_board

_ZSTD = 93
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_CUT = ("max_tokens", "model_length", "length")
_SampleReader = Callable[[Mapping[str, Any], str], tuple[Mapping[str, Any], str, Prediction]]
"""Returns the document, the question and the prediction of a sample."""


def read_inspect_log(path: Path, *, suffix: str) -> PredictionFile:
    """Read a log of `inspect eval`.

    Args:
        path: The file.
        suffix: File extension in lower case, `.eval` or `.json`.

    Raises:
        ValueError: The file is not a log, or its samples are of another task.
    """
    samples = list(_inspect_json(path) if suffix == ".json" else _inspect_archive(path))
    return _read(samples, file=str(path), read=_read_inspect_sample)


def is_inspect_json(path: Path) -> bool:
    """Return whether a JSON file is a log of inspect_ai."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(content, dict) and "eval" in content and "samples" in content


def read_lm_eval_samples(path: Path) -> PredictionFile:
    """Read the samples of `lm_eval --log_samples`.

    Raises:
        ValueError: The file is not a log, or its samples are of another task.
    """
    return _read(jsonl_rows(path), file=str(path), read=_read_lm_eval_sample)


def is_lm_eval_line(row: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is a sample of lm-eval."""
    return {"doc", "resps", "arguments"} <= row.keys()


def _inspect_json(path: Path) -> Iterator[Row]:
    samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
    if not isinstance(samples, list):
        raise ValueError(f"{path}: samples: got {type(samples).__name__}, allowed is a list")
    for number, sample in enumerate(samples, start=1):
        yield f"{path}:{number}", sample


def _inspect_archive(path: Path) -> Iterator[Row]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.startswith("samples/"))
            for name in names:
                yield f"{path}:{name}", json.loads(read_member(archive, name))
    # zipfile raises `RuntimeError` for encrypted members, and does not convert errors of zlib.
    except (zipfile.BadZipFile, RuntimeError, zlib.error) as error:
        raise ValueError(f"{path}: not a log of inspect_ai: {error}") from error


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a member of an archive, including zstd members, which `zipfile` does not support.

    Raises:
        zipfile.BadZipFile: The member is damaged.
    """
    info = archive.getinfo(name)
    if info.compress_type != _ZSTD:
        return archive.read(name)
    import pyarrow as pa

    assert archive.fp is not None
    archive.fp.seek(info.header_offset)
    header = archive.fp.read(_LOCAL_HEADER.size)
    try:
        name_length, extra_length = _LOCAL_HEADER.unpack(header)[-2:]
        archive.fp.seek(name_length + extra_length, 1)
        compressed = archive.fp.read(info.compress_size)
        content = pa.decompress(compressed, info.file_size, codec="zstd", asbytes=True)
    except (struct.error, OSError) as error:
        raise zipfile.BadZipFile(f"{name}: {error}") from error
    return bytes(content)


def _read_inspect_sample(
    sample: Mapping[str, Any], where: str
) -> tuple[Mapping[str, Any], str, Prediction]:
    document, output = sample["metadata"], sample["output"]
    # A sample that reached a limit has no reply.
    choice = next(iter(output["choices"]), {"message": {"content": ""}})
    is_cut = choice.get("stop_reason") in _CUT or not output["choices"]
    prompt = sample["input"]
    question = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    usage = output.get("usage") or {}
    return (
        document,
        question,
        _prediction(
            document,
            where,
            text=message_text(choice["message"]["content"]),
            is_truncated=is_cut,
            is_refused=choice.get("stop_reason") == "content_filter",
            seconds=_number(sample, "working_time"),
            num_prompt_tokens=int(_number(usage, "input_tokens")),
            num_new_tokens=int(_number(usage, "output_tokens")),
        ),
    )


def _number(values: Mapping[str, Any], name: str) -> float:
    return read_number(float(values.get(name) or 0), name=name)


def _read_lm_eval_sample(
    sample: Mapping[str, Any], where: str
) -> tuple[Mapping[str, Any], str, Prediction]:
    document = sample["doc"]
    text = sample["resps"][0][0]
    question = _last_question(sample["arguments"]["gen_args_0"]["arg_0"])
    return document, question, _prediction(document, where, text=message_text(text))


def _last_question(prompt: Any) -> str:
    """Return the last message of a prompt logged by lm-eval as text, JSON or a list."""
    value = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    return str(value[-1]["content"]) if isinstance(value, list) else str(value)


def _prediction(
    document: Mapping[str, Any],
    where: str,
    *,
    text: Any,
    is_truncated: bool = False,
    is_refused: bool = False,
    seconds: float = 0.0,
    num_prompt_tokens: int = 0,
    num_new_tokens: int = 0,
) -> Prediction:
    if text is not None and not isinstance(text, str):
        raise TypeError(f"reply: got {type(text).__name__}, allowed is text")
    board = get_board(document["board"])
    return Prediction(
        where=where,
        givens=read_cells(board, document["givens"]),
        answer=None,
        reply=Reply(text=text or "", is_truncated=is_truncated, is_refused=is_refused),
        seconds=seconds,
        num_prompt_tokens=num_prompt_tokens,
        num_new_tokens=num_new_tokens,
    )


def _read(samples: Iterable[Row], *, file: str, read: _SampleReader) -> PredictionFile:
    predictions: list[Prediction] = []
    errors: list[str] = []
    task: tuple[Board, int] | None = None
    for where, sample in samples:
        try:
            if failure := _error_of(sample):
                errors.append(f"{where}: the sample ended with an error: {failure}")
                continue
            document, question, prediction = read(sample, where)
            board, num_shots = get_board(document["board"]), int(document.get("num_shots", 0))
            _check_question(board, prediction.givens, question, num_shots=num_shots)
            task = task or (board, num_shots)
            _check_task((board, num_shots), first=task)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{where}: {error}") from error
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{where}: not a sample of a task of sudocot ({type(error).__name__}: {error})"
            ) from error
        predictions.append(prediction)
    if task is None:
        raise ValueError(f"{file}: no samples")
    return PredictionFile(board=task[0], predictions=predictions, errors=errors, num_shots=task[1])


def _error_of(sample: Mapping[str, Any]) -> str | None:
    """Return the error of a sample of inspect_ai without a reply, as of a failed request."""
    error, output = sample.get("error"), sample.get("output")
    if not isinstance(error, dict) or (isinstance(output, dict) and output.get("choices")):
        return None
    return " ".join(str(error.get("message")).split())[:200]


def _check_task(task: tuple[Board, int], *, first: tuple[Board, int]) -> None:
    """Check that a sample has the board and the prompt of the first one."""
    (board, num_shots), (first_board, first_shots) = task, first
    if board is not first_board:
        raise ValueError(
            f"board: got {board.name}, allowed is that of the first sample, {first_board.name}"
        )
    if num_shots != first_shots:
        raise ValueError(
            f"num_shots: got {num_shots}, allowed is that of the first sample, {first_shots}"
        )


def _check_question(board: Board, givens: Grid, question: str, *, num_shots: int) -> None:
    if not 0 <= num_shots <= MAX_SHOTS:
        raise ValueError(f"num_shots: got {num_shots}, allowed are 0 to {MAX_SHOTS}")
    protocol = TextProtocol(board=board)
    if protocol.question(givens).strip() not in question:
        raise ValueError("the prompt is not that of this version of the text protocol")
