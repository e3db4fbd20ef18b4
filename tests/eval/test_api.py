"""Tests of the engine `api` with a stub server on loopback: answers and faults."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from data.model_format.precision import UNKNOWN_PRECISION
from eval.engines import server as server_module
from eval.engines.contract import Caps, FinishReason, Request, Result
from eval.engines.options import EngineOptions, ServerOptions, parse_engine_args
from eval.engines.server import Server
from eval.engines.text.api import ApiTextModel
from eval.engines.text.engine import ReplySampling, TextEngine
from eval.engines.text.replies import REPLIES_FILE, ReplyLog
from eval.text_protocol.prompt import TextProtocol
from solver.puzzles import parse_puzzle
from tests.eval.fake_engine import BOARD, toy_sample
from tests.eval.stub_server import MODEL, Faults, StubServer, planned_answer, planned_kind, serving
from tests.mutations import mutations

SAMPLE = toy_sample(24)
KEY = "sk-secret-0123456789"
FIRST_DELAY_S = server_module._FIRST_DELAY_S
LONGEST_DELAY_S = server_module._LONGEST_DELAY_S
OUTCOMES = {
    "solved": FinishReason.SOLVED,
    "wrong": FinishReason.WRONG,
    "changed": FinishReason.CHANGED_GIVENS,
    "prose": FinishReason.MALFORMED,
    "loose": FinishReason.MALFORMED,
    "refusal": FinishReason.REFUSED,
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_FIRST_DELAY_S", 0.002)
    monkeypatch.setattr(server_module, "_LONGEST_DELAY_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def requests() -> list[Request]:
    return [
        Request(
            key=puzzle.key,
            board=BOARD,
            givens=parse_puzzle(puzzle.givens, board=BOARD)[1],
            mode="text",
            caps=Caps(max_new_tokens=500, max_segment_tokens=500),
        )
        for puzzle in SAMPLE
    ]


def decode(
    server: StubServer,
    *,
    log: ReplyLog | None = None,
    slots: int = 4,
    samples: int = 1,
    form: str = "auto",
    arguments: Sequence[str] = (),
    **options: object,
) -> list[Result]:
    settings = {"base_url": server.url, "timeout_s": 5.0, **options}
    engine_options = EngineOptions(
        precision=UNKNOWN_PRECISION,
        device=None,
        num_slots=slots,
        arguments=parse_engine_args(arguments),
        server=ServerOptions(**settings),  # type: ignore[arg-type]
    )
    sampling = ReplySampling(num_samples=samples, temperature=0.0 if samples == 1 else 1.0)
    model = ApiTextModel(MODEL, engine_options, sampling=sampling, form=form)  # type: ignore[arg-type]
    engine = TextEngine(model, num_shots=1, sampling=sampling, log=log)
    try:
        return list(engine.decode(requests()))
    finally:
        engine.close()


def check(results: Sequence[Result]) -> None:
    """Every puzzle once, with the outcome of the planned answer."""
    assert sorted(result.key for result in results) == [puzzle.key for puzzle in SAMPLE]
    for result in results:
        givens = next(r.givens for r in requests() if r.key == result.key)
        kind = planned_kind(BOARD, givens)
        assert result.finish_reason is OUTCOMES[kind]
        assert result.answer is not None
        assert (result.answer.lenient is FinishReason.SOLVED) == (kind in ("solved", "loose"))


@pytest.mark.parametrize("form", ["chat", "plain"])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_scored_and_counted(form: str, stream: bool) -> None:
    with serving() as server:
        check(
            decode(
                server,
                form=form,
                stream=stream,
                arguments=["reasoning_effort=low", 'chat_template_kwargs={"a":1}'],
            )
        )
        assert server.num_requests == len(SAMPLE)
        assert {body["temperature"] for body in server.bodies} == {0.0}
        assert {body["max_tokens"] for body in server.bodies} == {500}
        assert {body["reasoning_effort"] for body in server.bodies} == {"low"}
        assert server.bodies[0]["chat_template_kwargs"] == {"a": 1}
        assert ("stop" in server.bodies[0]) == (form == "plain")
        assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_storm_of_429_and_5xx_loses_nothing(tmp_path: Path) -> None:
    statuses = {number: (429, 500, 503, 529, 408)[number % 5] for number in range(60)}
    faults = Faults(statuses=statuses, retry_after="0.01")
    with serving(faults) as server:
        check(decode(server, log=ReplyLog(tmp_path), max_retries=60))
        assert set(server.num_answered.values()) == {1}


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Delays of the retries in seconds, with the real limits; nothing sleeps."""
    delays: list[float] = []

    async def sleep(delay_s: float) -> None:
        delays.append(delay_s)

    recorder = SimpleNamespace(sleep=sleep, timeout=asyncio.timeout)
    monkeypatch.setattr(server_module, "asyncio", recorder)
    monkeypatch.setattr(server_module, "_FIRST_DELAY_S", FIRST_DELAY_S)
    monkeypatch.setattr(server_module, "_LONGEST_DELAY_S", LONGEST_DELAY_S)
    return delays


async def ask(server: StubServer, *, max_retries: int) -> None:
    """Send one puzzle; the reply is the planned answer."""
    options = ServerOptions(base_url=server.url, max_retries=max_retries)
    client = Server(MODEL, options, num_in_flight=1)
    givens = requests()[0].givens
    try:
        prompt = TextProtocol(board=BOARD).question(givens)
        reply = await client.complete(prompt, {"max_new_tokens": 500})
    finally:
        await client.close()
    assert reply.text == planned_answer(BOARD, givens)


@pytest.mark.parametrize(
    ("retry_after", "delay_s"),
    [("7", 7.0), ("0", 0.0), ("9999", server_module._LONGEST_RETRY_AFTER_S)],
)
def test_retry_after_is_the_delay_up_to_a_limit(
    retry_after: str, delay_s: float, delays: list[float]
) -> None:
    faults = Faults(statuses=dict.fromkeys(range(3), 429), retry_after=retry_after)
    with serving(faults) as server:
        asyncio.run(ask(server, max_retries=3))
    assert delays == [delay_s] * 3


@pytest.mark.parametrize("retry_after", [None, "-1", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_delays_without_a_number_of_seconds_grow_exponentially(
    retry_after: str | None, delays: list[float]
) -> None:
    faults = Faults(statuses=dict.fromkeys(range(9), 429), retry_after=retry_after)
    with serving(faults) as server:
        asyncio.run(ask(server, max_retries=9))
    longest = [min(LONGEST_DELAY_S, FIRST_DELAY_S * 2**attempt) for attempt in range(9)]
    assert longest[-2:] == [LONGEST_DELAY_S] * 2
    shares = [delay / limit for delay, limit in zip(delays, longest, strict=True)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert len(set(shares)) == len(shares)  # random, so that requests do not retry together


class NoQuotaHandler(BaseHTTPRequestHandler):
    """Refuses all requests, as OpenAI does without credit: status 429, but not to be retried."""

    server: StubServer

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Refuse a request."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.num_requests += 1
        self.send_response(429)
        self.send_header("Retry-After", "7")
        self.end_headers()
        error = {"message": "no credit", "code": "insufficient_quota"}
        self.wfile.write(json.dumps({"error": error}).encode())


def test_missing_quota_is_not_retried(delays: list[float]) -> None:
    with serving() as server:
        server.RequestHandlerClass = NoQuotaHandler
        with pytest.raises(ValueError, match="status 429: no credit"):
            asyncio.run(ask(server, max_retries=3))
        assert server.num_requests == 1
    assert delays == []


@pytest.mark.parametrize("stream", [False, True])
def test_dropped_replies_are_asked_again(stream: bool) -> None:
    with serving(Faults(dropped={0, 3, 4, 9})) as server:
        check(decode(server, stream=stream))
        assert server.num_requests == len(SAMPLE) + 4
        assert set(server.num_answered.values()) == {1}


GARBAGE = [
    b"",
    b"<html>Bad gateway</html>",
    b'{"choices": []}',
    b'{"choices": [{"message": null, "finish_reason": "stop"}]}',
    b'{"choices": [{"message": {"content": 5}, "finish_reason": "stop"}]}',
    b'{"choices": "none"}',
    b"[1, 2]",
    b"\xff\xfe{}",
    b'{"error": {"message": "late"}}',
]


def test_garbage_is_asked_again() -> None:
    with serving(Faults(garbage=dict(enumerate(GARBAGE)))) as server:
        check(decode(server, slots=1, max_retries=len(GARBAGE)))
        assert server.num_requests == len(SAMPLE) + len(GARBAGE)


def test_garbage_in_a_stream_is_asked_again() -> None:
    garbage = {0: b"data: {\n\n", 1: b"data: [DONE]\n\n", 2: b'data: {"choices": 3}\n\n', 3: b"x"}
    with serving(Faults(garbage=garbage)) as server:
        check(decode(server, slots=1, stream=True))
        assert server.num_requests == len(SAMPLE) + len(garbage)


CHOICE = {"index": 0, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
REPLIES = {
    "chat": {
        "object": "chat.completion",
        "choices": [{**CHOICE, "message": {"role": "assistant", "content": "a"}}],
        "usage": USAGE,
    },
    "plain": {"choices": [{**CHOICE, "text": "a"}], "usage": USAGE},
    "stream": {"choices": [{**CHOICE, "delta": {"content": "a"}}], "usage": USAGE},
    "models": {"object": "list", "data": [{"id": MODEL, "max_model_len": 32}]},
}


@pytest.mark.parametrize("kind", REPLIES)
def test_mutated_replies_are_read_or_refused_in_one_line(kind: str) -> None:
    contents = list(mutations(REPLIES[kind]))
    bodies = [json.dumps(content).encode() for content in contents]
    if kind == "stream":
        bodies = [b"data: " + body + b"\n\ndata: [DONE]\n\n" for body in bodies]
    faults = Faults(garbage={} if kind == "models" else dict(enumerate(bodies)))
    read, refused = asyncio.run(_read_all(kind, faults, bodies))
    assert read > len(bodies) / 3
    assert refused > len(bodies) / 12


async def _read_all(kind: str, faults: Faults, bodies: list[bytes]) -> tuple[int, int]:
    num_read = 0
    messages: list[str] = []
    with serving(faults) as server:
        options = ServerOptions(
            base_url=server.url, max_retries=0, stream=kind == "stream", timeout_s=10.0
        )
        client = Server(MODEL, options, num_in_flight=1)
        fields = {"max_new_tokens": 3}
        for body in bodies:
            faults.models = body if kind == "models" else None
            try:
                if kind == "models":
                    length = await client.max_model_len()
                    assert length is None or length > 0
                else:
                    chat = [{"role": "user", "content": "p"}]
                    is_plain = kind == "plain"
                    call = client.complete("p", fields) if is_plain else client.chat(chat, fields)
                    reply = await call
                    reply.text.encode()
                    assert 0 <= reply.num_new_tokens < 10**16
                num_read += 1
            except (ValueError, OSError) as error:
                messages.append(str(error))
        await client.close()
    assert all("\n" not in message and len(message) < 500 for message in messages)
    return num_read, len(messages)


def test_a_slow_answer_is_given_up_and_asked_again() -> None:
    with serving(Faults(delay_s={2: 3.0})) as server:
        check(decode(server, timeout_s=0.5))


def test_requests_overlap() -> None:
    with serving(delay_s=0.1) as server:
        begun = time.monotonic()
        check(decode(server, slots=24))
        assert time.monotonic() - begun < 24 * 0.1


def test_a_server_that_gives_up_keeps_what_it_answered(tmp_path: Path) -> None:
    """What arrived is kept, the error is one line, and the next run asks only for the rest."""
    faults = Faults(statuses=dict.fromkeys(range(10, 1000), 500), message=f"down, {KEY} is\nfine")
    with serving(faults) as server, pytest.raises(OSError, match="attempts: 3") as bad:
        decode(server, log=ReplyLog(tmp_path), max_retries=2)
    assert "\n" not in str(bad.value)
    assert KEY not in str(bad.value)
    assert "***" in str(bad.value)
    num_kept = len((tmp_path / REPLIES_FILE).read_text().splitlines())
    assert num_kept == 10
    with serving() as server:
        check(decode(server, log=ReplyLog(tmp_path)))
        assert server.num_requests == len(SAMPLE) - num_kept


@pytest.mark.parametrize(
    ("status", "match"), [(401, "status 401"), (404, "status 404"), (400, "status 400")]
)
def test_a_refused_request_is_not_repeated(status: int, match: str) -> None:
    faults = Faults(statuses=dict.fromkeys(range(100), status))
    with serving(faults) as server:
        with pytest.raises(ValueError, match=match):
            decode(server, slots=2)
        assert server.num_requests <= 2


def test_the_limit_is_renamed_for_models_that_require_it() -> None:
    faults = Faults(statuses={0: 400}, message="use max_completion_tokens instead")
    with serving(faults) as server:
        check(decode(server, slots=1))
        assert "max_completion_tokens" in server.bodies[-1]
        assert "max_tokens" not in server.bodies[-1]


def test_the_limit_is_renamed_for_all_requests_in_flight() -> None:
    faults = Faults(
        statuses=dict.fromkeys(range(4), 400),
        delay_s=dict.fromkeys(range(4), 0.2),
        message="use max_completion_tokens instead",
    )
    with serving(faults) as server:
        check(decode(server, slots=4))
        assert ["max_tokens" in body for body in server.bodies] == [True] * 4 + [False] * 24


def test_a_key_at_the_end_of_a_shortened_message_is_masked() -> None:
    message = "x" * (server_module._LONGEST_MESSAGE - 6) + KEY
    with serving(Faults(statuses={0: 401}, message=message)) as server:
        with pytest.raises(ValueError, match="status 401") as error:
            decode(server, slots=1)
        assert "sk-s" not in str(error.value)
        assert "xxx***" in str(error.value)


def test_no_server_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        server = StubServer()
        server.server_close()
        with pytest.raises(OSError, match="attempts: 2"):
            decode(server, base_url=url, max_retries=1)


@pytest.mark.parametrize("word", ["temperature=1", "top_p=0.5", "n=2", "stream=true"])
def test_fields_with_options_of_their_own_are_refused(word: str) -> None:
    with serving() as server, pytest.raises(ValueError, match="allowed are --temperature"):
        decode(server, arguments=[word])


@pytest.mark.parametrize("word", ["max_tokens=7", "max_new_tokens=null", "prompt=x"])
def test_fields_that_the_client_sets_are_refused(word: str) -> None:
    name = word.partition("=")[0]
    with serving() as server, pytest.raises(ValueError, match=f"engine_args: got {name}, which"):
        decode(server, arguments=[word])


def test_fields_that_servers_may_not_accept_can_be_omitted() -> None:
    with serving() as server:
        check(decode(server, arguments=["temperature=null"]))
        assert not any({"seed", "temperature"} & body.keys() for body in server.bodies)


def test_content_may_have_reasoning_parts_and_no_finish_reason() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "1 2"}]
    message = SimpleNamespace(content=parts, refusal=None)
    reply = SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=None)])
    completion = server_module._read(reply)
    assert (completion.text, completion.finish_reason) == ("1 2", "stop")


def test_samples_vote_and_no_sample_is_asked_twice(tmp_path: Path) -> None:
    with serving() as server:
        results = decode(server, samples=3, log=ReplyLog(tmp_path))
        assert server.num_requests == 3 * len(SAMPLE)
        assert len({body["seed"] for body in server.bodies}) == 3 * len(SAMPLE)
    check(results)
    path = tmp_path / REPLIES_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-5]) + lines[-5][:-9])  # a kill in the middle of a line
    with serving() as server:
        again = decode(server, samples=3, log=ReplyLog(tmp_path))
        assert server.num_requests == 5
    check(again)
    assert {r.answer.num_samples for r in again if r.answer} == {3}
