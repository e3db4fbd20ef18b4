"""Options with which an engine is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """Seconds after which a request times out and is sent again."""
    max_retries: Annotated[int, Ge(0), Le(1000)] = 8
    """Retries after status 408, 409, 425, 429, 5xx, lost connections, timeouts and bad replies."""
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
    """Options common to all engines."""

    precision: PrecisionPolicy
    """Number formats."""
    device: torch.device | None
    """Device of the model; None for `api`."""
    num_slots: int
    """Number of segments, puzzles or requests in flight."""
    num_replicas: int = 1
    """Data-parallel replicas of the model (`vllm`)."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """`--engine-args`: arguments of vLLM, or additional fields of requests to a server."""
    server: ServerOptions | None = None
    """Options of the server (`api`)."""

    def __post_init__(self) -> None:
        if self.num_slots < 1:
            raise ValueError(f"num_slots: got {self.num_slots}, allowed is at least 1")

    @property
    def local_device(self) -> torch.device:
        """Device of a model that runs in this process."""
        assert self.device is not None
        return self.device


def with_bf16_weights(precision: PrecisionPolicy, *, rotary: str) -> PrecisionPolicy:
    """Return the precision of a library that also stores weights in bf16 if activations are bf16.

    Args:
        precision: Requested precision.
        rotary: Number format of the rotary embeddings in bf16.
    """
    if precision.activations != "bf16":
        return precision
    return replace(precision, weights="bf16", rotary=rotary)


def parse_engine_args(words: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value` words; values are decoded as JSON if possible, else taken as strings.

    Raises:
        ValueError: A word has no `=`, or a key is repeated.
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
