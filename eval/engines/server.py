"""Client of an OpenAI-compatible server with retries, backoff and one-line errors.

The API key is read from an environment variable and is neither stored nor logged; it is masked in
messages of the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from eval.engines.options import ServerOptions
from eval.text_protocol.parse import message_text

if TYPE_CHECKING:
    import openai

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.5, 60.0
_LONGEST_RETRY_AFTER_S = 300.0
_RETRIED_STATUS = (408, 409, 425, 429)
_NO_QUOTA = "insufficient_quota"
_LONGEST_MESSAGE = 300
_OWN_FIELDS = frozenset(
    ("model", "messages", "prompt", "max_new_tokens", "max_tokens", "max_completion_tokens")
)
"""Fields of requests that the client sets."""
_MAX_COUNT = 1 << 53
"""Larger token counts of a server are ignored."""
_Value = TypeVar("_Value")

logger = logging.getLogger(__name__)


class BadReplyError(Exception):
    """A reply that violates the API; the request is retried."""


class Completion(NamedTuple):
    """Reply of a server to one prompt."""

    text: str
    """Generated text."""
    finish_reason: str
    """`stop`, `length`, `content_filter`, ..."""
    is_refused: bool
    """Whether the reply has a `refusal` field."""
    num_prompt_tokens: int
    """Prompt tokens as reported by the server, or 0."""
    num_new_tokens: int
    """Generated tokens as reported by the server, or 0."""


def check_fields(names: Iterable[str]) -> None:
    """Check that fields of requests that the client sets are not given.

    Raises:
        ValueError: One is given.
    """
    if own := _OWN_FIELDS & set(names):
        raise ValueError(
            f"engine_args: got {min(own)}, which --model, the prompt or --max-new-tokens set"
        )


class Server:
    """A model of an OpenAI-compatible server; its methods run on one event loop."""

    def __init__(self, model: str, options: ServerOptions, *, num_in_flight: int) -> None:
        """Create the client without sending a request.

        Raises:
            ImportError: openai is not installed.
            ValueError: The server needs a key, and the environment variable is not set.
        """
        import openai

        key = os.environ.get(options.api_key_env)
        url = options.base_url or os.environ.get("OPENAI_BASE_URL")
        if key is None and url is None:
            raise ValueError(
                f"base_url: got none and {options.api_key_env} is not set; give the URL of a "
                "server, or a key for OpenAI's"
            )
        self._key, self._options, self._openai = key, options, openai
        self._is_failing = False
        self._random = random.Random(0)  # noqa: S311 - spreads retries
        self._limit_field = "max_tokens"
        self._model = model
        limits = openai.DEFAULT_CONNECTION_LIMITS
        limits = type(limits)(
            max_connections=num_in_flight, max_keepalive_connections=num_in_flight
        )
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=url,
            timeout=options.timeout_s,
            max_retries=0,  # `_retry` handles malformed replies, too
            http_client=openai.DefaultAsyncHttpxClient(limits=limits, timeout=options.timeout_s),
        )
        self.url = _without_user(str(self._client.base_url))

    async def chat(self, messages: list[Any], fields: dict[str, Any]) -> Completion:
        """Return the reply to a chat.

        Args:
            messages: The messages.
            fields: Additional fields of the request; `max_new_tokens` limits the reply.

        Raises:
            ValueError: The server rejects the request.
            OSError: The server fails or cannot be reached.
        """
        create = self._client.chat.completions.create

        async def send() -> Completion:
            reply = await create(messages=messages, **self._request(fields))
            return await _read_stream(reply, _chat_delta) if self._options.stream else _read(reply)

        return await self._retry(send)

    async def complete(self, prompt: str, fields: dict[str, Any]) -> Completion:
        """Return the continuation of a text; see `chat`."""
        create = self._client.completions.create

        async def send() -> Completion:
            reply = await create(prompt=prompt, **self._request(fields))
            return await _read_stream(reply, _text_delta) if self._options.stream else _read(reply)

        return await self._retry(send)

    async def max_model_len(self) -> int | None:
        """Return the context length of the model as reported by the server, or None.

        Raises:
            ValueError: The server does not serve the model.
            OSError: The server cannot be reached.
        """

        async def send() -> dict[str, Any]:
            try:
                models = {model.id: model async for model in self._client.models.list()}
            except (AttributeError, TypeError):  # openai does not validate replies
                raise BadReplyError("no list of models") from None
            if not all(isinstance(name, str) for name in models):
                raise BadReplyError("a model whose id is not a string")
            return models

        models = await self._retry(send)
        if self._model not in models:
            names = ", ".join(sorted(models)[:10]) or "no model"
            raise ValueError(f"model: got {self._model!r}, {self.url} serves {names}")
        length = getattr(models[self._model], "max_model_len", None)
        return length if type(length) is int and length > 0 else None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _request(self, fields: dict[str, Any]) -> dict[str, Any]:
        fields = dict(fields)
        body = {self._limit_field: fields.pop("max_new_tokens"), **fields}
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {
            "model": self._model,
            "extra_body": body,
            **(stream if self._options.stream else {}),
        }

    async def _retry(self, send: Callable[[], Awaitable[_Value]]) -> _Value:
        """Send a request with retries, or without them once another request has failed."""
        errors = self._openai
        attempt = 0
        while True:
            limit_field = self._limit_field
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    return await send()
            except errors.APIStatusError as error:
                if self._switches_limit_field(error, limit_field):
                    continue
                problem, delay = self._describe(error), _retry_after(error)
                if not _is_retried(error):
                    self._is_failing = True
                    raise ValueError(f"{self.url}: {problem}") from None
            except (errors.APIConnectionError, TimeoutError) as error:
                is_timeout = isinstance(error, (errors.APITimeoutError, TimeoutError))
                after = f"no reply within {self._options.timeout_s:g} s"
                cause = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
                problem, delay = (after if is_timeout else self._mask(cause)), None
            except (errors.APIError, BadReplyError, ValueError) as error:
                problem, delay = f"malformed reply: {self._mask(str(error))}", None
            attempt += 1
            if attempt > self._options.max_retries or self._is_failing:
                self._is_failing = True
                raise OSError(f"{self.url}: {problem}; attempts: {attempt}")
            logger.debug("%s: %s; attempt %d", self.url, problem, attempt)
            backoff = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (attempt - 1))
            await asyncio.sleep(backoff * self._random.uniform(0.5, 1) if delay is None else delay)

    def _switches_limit_field(self, error: openai.APIStatusError, sent: str) -> bool:
        """Switch to the newer name of the token limit, which some models require.

        Args:
            error: Reply of the server.
            sent: Name in the rejected request.

        Returns:
            Whether to send the request again with the newer name.
        """
        newer = "max_completion_tokens"
        if error.status_code != 400 or newer not in str(error) or sent == newer:
            return False
        self._limit_field = newer
        return True

    def _describe(self, error: openai.APIStatusError) -> str:
        body = error.body
        message = body.get("message") if isinstance(body, dict) else body
        return f"status {error.status_code}: {self._mask(str(message or error.message))}"

    def _mask(self, text: str) -> str:
        """Return a message on one line, shortened, without the key."""
        text = " ".join((text.replace(self._key, "***") if self._key else text).split())
        return text[:_LONGEST_MESSAGE]


def _without_user(url: str) -> str:
    """Return a URL without user name, password and query, which may contain a key."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _is_retried(error: openai.APIStatusError) -> bool:
    if error.code == _NO_QUOTA:
        return False
    return error.status_code in _RETRIED_STATUS or error.status_code >= 500


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Return the delay requested by the server in seconds, or None."""
    try:
        delay = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(delay, _LONGEST_RETRY_AFTER_S) if delay >= 0 else None


def _read(reply: Any) -> Completion:
    """Read a non-streaming reply.

    Raises:
        BadReplyError: The reply violates the API.
    """
    try:
        choice = reply.choices[0]
        message = getattr(choice, "message", None)
        text = choice.text if message is None else message.content
        refusal = getattr(message, "refusal", None)
    except (AttributeError, LookupError, TypeError):
        raise BadReplyError("no choice with a text or a message") from None
    return _completion(
        text=refusal if text is None and refusal else message_text(text),
        # Some servers state none for a complete reply.
        finish_reason="stop" if choice.finish_reason is None else choice.finish_reason,
        is_refused=bool(refusal),
        usage=getattr(reply, "usage", None),
    )


async def _read_stream(stream: Any, read_delta: Callable[[Any], tuple[Any, Any]]) -> Completion:
    """Read a streaming reply.

    Raises:
        BadReplyError: The stream was interrupted or violates the API.
    """
    parts: list[str] = []
    refusals: list[str] = []
    finish_reason = usage = None
    try:
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices[:1]:
                text, refusal = (part or "" for part in read_delta(choice))
                parts.append(text)
                refusals.append(refusal)
                finish_reason = choice.finish_reason or finish_reason
        text, refusal = "".join(parts), "".join(refusals)
    except (AttributeError, LookupError, TypeError):
        raise BadReplyError("a chunk without choices") from None
    except Exception as error:  # the HTTP library raises errors of its own in a stream
        raise BadReplyError(f"the stream was interrupted: {error}") from error
    finally:
        await stream.close()  # an interrupted stream would keep its connection open
    if finish_reason is None:
        raise BadReplyError("the stream ended without a finish reason")
    return _completion(
        text=text or refusal,
        finish_reason=finish_reason,
        is_refused=bool(refusal),
        usage=usage,
    )


def _chat_delta(choice: Any) -> tuple[Any, Any]:
    return message_text(choice.delta.content), getattr(choice.delta, "refusal", None)


def _text_delta(choice: Any) -> tuple[Any, Any]:
    return choice.text, None


def _completion(*, text: Any, finish_reason: Any, is_refused: bool, usage: Any) -> Completion:
    if not isinstance(text, (str, type(None))) or not isinstance(finish_reason, str):
        raise BadReplyError("a choice without a text or a finish reason")
    return Completion(
        text=_valid_unicode(text or ""),
        finish_reason=_valid_unicode(finish_reason),
        is_refused=is_refused,
        num_prompt_tokens=_count(usage, "prompt_tokens"),
        num_new_tokens=_count(usage, "completion_tokens"),
    )


def _valid_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _count(usage: Any, name: str) -> int:
    value = getattr(usage, name, None)
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else 0
