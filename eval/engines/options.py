"""Options with which an engine is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le

from data.model_format.precision import PrecisionPolicy
from data.runtime.ranges import check_ranges

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """An OpenAI-compatible server, for the engine `api`."""

    base_url: str | None = None
    """URL of the server up to and including /v1; by default that of OpenAI, or OPENAI_BASE_URL."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; servers without keys need none."""
    timeout_s: Annotated[float, Gt(0), Le(1e6)] = 600.0
    """Seconds after which a request is given up and sent again."""
    max_retries: Annotated[int, Ge(0), Le(1000)] = 8
    """Further attempts after 408, 409, 429, 5xx, lost connections, time-outs and bad replies."""
    stream: bool = False
    """Receive replies as streams, for proxies that close idle connections."""
    price_in: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Price of a million prompt tokens, in US dollars."""
    price_out: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Price of a million generated tokens, in US dollars."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url: got {self.base_url!r}, allowed are http:// and https://")

    def price(self, *, num_prompt_tokens: int, num_new_tokens: int) -> float:
        """Return the price of a request, in US dollars."""
        return (num_prompt_tokens * self.price_in + num_new_tokens * self.price_out) / 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """Options that all engines have in common."""

    precision: PrecisionPolicy
    """Number formats."""
    device: torch.device | None
    """Device of the model; None for `api`."""
    num_slots: int
    """Segments, puzzles or requests in flight."""
    num_replicas: int = 1
    """Copies of the model that share the puzzles (`vllm`)."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """`--engine-args`: arguments of vLLM, or further fields of the requests to a server."""
    server: ServerOptions | None = None
    """The server (`api`)."""

    def __post_init__(self) -> None:
        if self.num_slots < 1:
            raise ValueError(f"num_slots: got {self.num_slots}, allowed is at least 1")

    @property
    def local_device(self) -> torch.device:
        """Device of a model that the engine loads itself."""
        assert self.device is not None
        return self.device


def parse_engine_args(words: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value` words; a value that is JSON is decoded, any other is text.

    Raises:
        ValueError: a word without `=`, or a key twice.
    """
    arguments: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key:
            raise ValueError(f"engine_args: got {word!r}, allowed is key=value")
        key = key.replace("-", "_")
        if key in arguments:
            raise ValueError(f"engine_args: got {key} twice, allowed is each key once")
        try:
            arguments[key] = json.loads(text)
        except json.JSONDecodeError:
            arguments[key] = text
    return arguments
