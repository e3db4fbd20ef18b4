"""A stub of an OpenAI-compatible server: it answers Sudoku prompts right or wrong, as planned.

The answer to a puzzle is a function of the puzzle, so that every client gets the same ones. Faults
are injected by `Faults`. `python -m tests.eval.stub_server PORT` serves in a process of its own.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from eval.text_protocol.prompt import answer_block
from solver.boards import BOARDS, Board, Grid
from solver.mrv.tracer import trace
from solver.puzzle_io.cells import read_grid
from solver.puzzles import puzzle_id

MODEL = "stub-model"
_BLOCK = re.compile(r"```\n([0-9. \n]+)\n```")
KINDS = ("solved", "solved", "wrong", "solved", "changed", "prose", "solved", "loose", "refusal")
"""Kinds of answers, by the hash of the puzzle."""


def planned_kind(board: Board, givens: Grid) -> str:
    """Return the kind of answer that a puzzle gets."""
    return KINDS[int(puzzle_id(board, givens[None])[0]) % len(KINDS)]


def planned_answer(board: Board, givens: Grid) -> str:
    """Return the answer that a puzzle gets."""
    solution = trace(board, givens).solution
    assert solution is not None
    kind = planned_kind(board, givens)
    grid = solution.copy()
    if kind in ("wrong", "changed"):
        cell = np.flatnonzero((givens == 0) == (kind == "wrong"))[0]
        grid[cell] = grid[cell] % board.side + 1
    if kind == "refusal":
        return "I'm sorry, but I can't solve this puzzle."
    if kind == "prose":
        return "The first row is easy, and the others follow."
    if kind == "loose":
        return "\n".join(" | ".join(map(str, row)) for row in grid.reshape(board.side, -1).tolist())
    return f"Let me see.\n\n{answer_block(board, grid)}"


@dataclass
class Faults:
    """What goes wrong, by the number of the request, from 0."""

    statuses: dict[int, int] = field(default_factory=dict)
    """Status codes to answer with."""
    retry_after: str | None = None
    """Header of these answers."""
    dropped: set[int] = field(default_factory=set)
    """Requests whose connection is closed in the middle of the reply."""
    garbage: dict[int, bytes] = field(default_factory=dict)
    """Bodies to answer with, status 200."""
    delay_s: dict[int, float] = field(default_factory=dict)
    """Seconds before an answer."""
    models: bytes | None = None
    """Body of the list of models."""
    message: str = "try again"
    """Message of the errors."""


class StubServer(ThreadingHTTPServer):
    """The server; counts the requests of each puzzle."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, faults: Faults | None = None, *, port: int = 0, delay_s: float = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.faults = faults or Faults()
        self.delay_s = delay_s
        self.lock = threading.Lock()
        self.num_requests = 0
        self.num_answered: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []

    @property
    def url(self) -> str:
        """Base URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def serving(faults: Faults | None = None, *, delay_s: float = 0) -> Iterator[StubServer]:
    """Serve in a thread."""
    with StubServer(faults, delay_s=delay_s) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: StubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Be quiet."""

    def do_GET(self) -> None:
        """List the models."""
        listed = json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode()
        self._send(200, self.server.faults.models or listed)

    def do_POST(self) -> None:
        """Answer a prompt."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            number = server.num_requests
            server.num_requests += 1
            server.bodies.append(body)
            server.keys.append(self.headers.get("Authorization", ""))
        faults = server.faults
        time.sleep(faults.delay_s.get(number, server.delay_s))
        if number in faults.statuses:
            error = {"error": {"message": faults.message, "type": "stub", "code": None}}
            self._send(faults.statuses[number], json.dumps(error).encode())
        elif number in faults.garbage:
            self._send(200, faults.garbage[number])
        else:
            self._answer(body, is_dropped=number in faults.dropped)

    def _answer(self, body: dict[str, Any], *, is_dropped: bool) -> None:
        is_chat = self.path.endswith("/chat/completions")
        prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
        text = _BLOCK.findall(prompt)[-1].replace("\n", " ")
        side = int(len(text.split()) ** 0.5)
        board = BOARDS[f"{side}x{side}"]
        givens = read_grid(board, text)
        answer = planned_answer(board, givens)
        usage = {
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": len(answer.split()),
            "total_tokens": len(prompt.split()) + len(answer.split()),
        }
        if body.get("stream"):
            self._stream(answer, usage=usage, is_chat=is_chat, is_dropped=is_dropped)
        else:
            said = (
                {"message": {"role": "assistant", "content": answer}}
                if is_chat
                else {"text": answer}
            )
            reply = {
                "id": "stub",
                "object": "chat.completion" if is_chat else "text_completion",
                "created": 0,
                "model": MODEL,
                "choices": [{"index": 0, "finish_reason": "stop", **said}],
                "usage": usage,
            }
            content = json.dumps(reply).encode()
            self._send(200, content[: len(content) // 2] if is_dropped else content, len(content))
        if not is_dropped:
            with self.server.lock:
                self.server.num_answered[f"{puzzle_id(board, givens[None])[0]:016x}"] += 1

    def _stream(
        self, answer: str, *, usage: dict[str, int], is_chat: bool, is_dropped: bool
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        pieces = re.findall(r"\S+\s*", answer)
        pieces = pieces[: len(pieces) // 2] if is_dropped else pieces
        for piece in pieces:
            said: dict[str, Any] = {"delta": {"role": "assistant", "content": piece}}
            self._event(said if is_chat else {"text": piece}, kind=kind)
        if not is_dropped:
            said = {"delta": {}} if is_chat else {"text": ""}
            self._event(said, kind=kind, finish_reason="stop")
            self._write({"object": kind, "choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(
        self, choice: dict[str, Any], *, kind: str, finish_reason: str | None = None
    ) -> None:
        choice = {"index": 0, "finish_reason": finish_reason, **choice}
        self._write({"object": kind, "choices": [choice]})

    def _write(self, event: dict[str, Any]) -> None:
        event = {"id": "stub", "created": 0, "model": MODEL, **event}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _send(self, status: int, content: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) if length is None else length))
        if status != 200 and self.server.faults.retry_after:
            self.send_header("Retry-After", self.server.faults.retry_after)
        if length not in (None, len(content)):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    with StubServer(port=int(sys.argv[1]), delay_s=float(sys.argv[2])) as stub:
        print(stub.url, flush=True)  # noqa: T201
        stub.serve_forever()
