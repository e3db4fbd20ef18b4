"""The engine `api` for text: sends prompts to an OpenAI-compatible server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from data.model_format.precision import UNKNOWN_PRECISION
from eval.engines.contract import EngineStats
from eval.engines.in_flight import run_in_flight
from eval.engines.loop_thread import LoopThread
from eval.engines.options import EngineOptions, ServerOptions
from eval.engines.server import Server, check_fields
from eval.engines.text.engine import Prompt, PromptForm, ReplySampling
from eval.engines.text.replies import StoredReply
from eval.text_protocol.score import Reply

_OWN_FIELDS = frozenset(("temperature", "top_p", "n", "stream"))
"""Fields of requests that have options of their own, which evaluations store."""


class ApiTextModel:
    """A served model; uses /chat/completions for `chat` prompts, /completions for `plain` ones."""

    name = "api"
    precision = UNKNOWN_PRECISION

    def __init__(
        self, model: str, options: EngineOptions, *, sampling: ReplySampling, form: PromptForm
    ) -> None:
        """Create the client without sending a request.

        Args:
            model: Name of the model on the server.
            options: Options of the engine and the server.
            sampling: Sampling parameters.
            form: Form of the prompts.
        """
        self._options = options.server or ServerOptions()
        self.stats = EngineStats()
        self.form: PromptForm = "plain" if form == "plain" else "chat"
        self._sampling, self._arguments = sampling, dict(options.arguments)
        for name in _OWN_FIELDS & self._arguments.keys():
            if self._arguments[name] is not None:
                raise ValueError(
                    f"engine_args: got {name}, allowed are --temperature, --top-p, --samples "
                    "and --stream"
                )
        check_fields(self._arguments)
        self._num_in_flight = options.num_slots
        self._server = Server(model, self._options, num_in_flight=options.num_slots)
        self._loop = LoopThread("api")
        self.device = self._server.url

    @classmethod
    def load(
        cls, model: str, options: EngineOptions, *, sampling: ReplySampling, form: PromptForm
    ) -> ApiTextModel:
        """See `eval.engines.factory`."""
        return cls(model, options, sampling=sampling, form=form)

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """See `eval.engines.text.engine.TextModel`."""
        yield from run_in_flight(
            prompts,
            lambda prompt: self._loop.submit(self._ask(prompt)),
            limit=self._num_in_flight,
        )

    def close(self) -> None:
        """Close the connections."""
        self._loop.submit(self._server.close()).result()
        self._loop.close()

    async def _ask(self, prompt: Prompt) -> StoredReply:
        start_time = time.perf_counter()
        fields = self._fields(prompt)
        protocol = prompt.protocol
        if self.form == "chat":
            reply = await self._server.chat(list(protocol.messages(prompt.givens)), fields)
        else:
            fields = {"stop": [protocol.plain_stop], **fields}
            reply = await self._server.complete(protocol.plain_prompt(prompt.givens), fields)
        return StoredReply(
            key=prompt.key,
            sample=prompt.sample,
            reply=Reply(
                text=reply.text,
                is_truncated=reply.finish_reason == "length",
                is_refused=reply.is_refused or reply.finish_reason == "content_filter",
            ),
            num_prompt_tokens=reply.num_prompt_tokens,
            num_new_tokens=reply.num_new_tokens,
            seconds=time.perf_counter() - start_time,
            usd=self._options.price(
                num_prompt_tokens=reply.num_prompt_tokens, num_new_tokens=reply.num_new_tokens
            ),
        )

    def _fields(self, prompt: Prompt) -> dict[str, Any]:
        sampling = self._sampling
        fields: dict[str, Any] = {
            "max_new_tokens": prompt.max_new_tokens,
            "temperature": sampling.temperature,
        }
        if sampling.temperature > 0:
            fields["seed"] = prompt.seed  # not every server accepts it
        if sampling.top_p < 1:
            fields["top_p"] = sampling.top_p
        fields |= self._arguments
        return {name: value for name, value in fields.items() if value is not None}
