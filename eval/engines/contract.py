"""Interface of the evaluation engines: requests, results, limits and finish reasons.

Decoding is greedy; ties between logits go to the smallest id. In fp32, all engines return the same
result for the same checkpoint, regardless of the order and number of requests in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from annotated_types import Ge

from data.model_format.facts import Mode
from data.model_format.precision import PrecisionPolicy
from data.runtime.ranges import check_ranges
from solver.boards import Board, Grid
from solver.vocabulary import Tokens

COT_MAX_NEW_TOKENS = 32_512
"""The paper's cap for CoT (Appendix "Evaluation")."""
SCOT_MAX_NEW_TOKENS = 5_000_000
"""The paper's cap for SCoT, over all segments of a puzzle."""
HARDEST_MAX_NEW_TOKENS = 15_000_000
"""The paper's cap for SCoT on the 100 hardest puzzles."""
SCOT_MAX_SEGMENT_TOKENS = 2_048
"""The paper's cap on the new tokens of one segment, its summary included."""


class FinishReason(StrEnum):
    """Why the decoding of a puzzle ended."""

    SOLVED = "solved"
    """The output block is well formed, in row-major order, and contains the solution."""
    WRONG = "wrong"
    """The output block is well formed but does not contain the solution."""
    MALFORMED = "malformed"
    """Ended by a stop token without a well-formed output block or summary."""
    LOOP = "loop"
    """A prompt occurred twice, so that greedy decoding would not terminate."""
    SEGMENT_CAP = "segment_cap"
    """Reached `Caps.max_segment_tokens`."""
    TOTAL_CAP = "total_cap"
    """Reached `Caps.max_new_tokens`."""
    CONTEXT = "context"
    """Reached the context length of the model."""
    CHANGED_GIVENS = "changed_givens"
    """Text and imported grids: a complete grid that changes a given."""
    TRUNCATED = "truncated"
    """Text: the reply reached its token limit before an answer."""
    REFUSED = "refused"
    """Text: no answer; a refusal of the model or of a content filter."""


EvaluationMode = Mode | Literal["text", "grid"]
"""Output of a model: `cot` or `scot` as token ids, `text`, or an imported `grid`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """Token limits of one puzzle."""

    max_new_tokens: Annotated[int, Ge(1)]
    """Maximum number of generated tokens over all segments."""
    max_segment_tokens: Annotated[int, Ge(1)]
    """Maximum number of generated tokens per segment, including its summary."""

    def __post_init__(self) -> None:
        check_ranges(self)


def paper_caps(mode: Mode, *, is_hardest: bool = False) -> Caps:
    """Return the limits of the paper; a CoT is one segment, so that both limits are equal."""
    if mode == "cot":
        return Caps(max_new_tokens=COT_MAX_NEW_TOKENS, max_segment_tokens=COT_MAX_NEW_TOKENS)
    total = HARDEST_MAX_NEW_TOKENS if is_hardest else SCOT_MAX_NEW_TOKENS
    return Caps(max_new_tokens=total, max_segment_tokens=SCOT_MAX_SEGMENT_TOKENS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """One puzzle to decode."""

    key: str
    """Puzzle hash, copied into the result."""
    board: Board
    """Board of the puzzle."""
    givens: Grid
    """Digits, uint8 (num_cells,), 0 for blank."""
    mode: EvaluationMode
    """`cot`: one segment; `scot`: the summary at the end of a segment is the prompt of the next
    one; `text`: the text protocol."""
    caps: Caps
    """Token limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerFacts:
    """Additional scores of an answer in text or of an imported grid."""

    lenient: FinishReason
    """Outcome by the lenient parser; for a grid, its only outcome."""
    num_right_cells: int
    """Blank cells filled with the digit of the solution (lenient parser)."""
    num_blank_cells: int
    """Blank cells of the puzzle."""
    num_samples: int = 1
    """Replies sampled for the puzzle."""
    num_solved_samples: int = 1
    """Replies that solve the puzzle (strict parser)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Result:
    """Result of one puzzle."""

    key: str
    """Key of the request."""
    finish_reason: FinishReason
    """Why decoding ended."""
    num_new_tokens: int
    """Generated tokens over all segments."""
    num_segments: int
    """Number of segments, including an unfinished last one."""
    output: Tokens | None
    """Ids of the output block: from the last `<output>` of the last segment to its `</output>`;
    None without one. Sufficient for scoring the result again."""
    segments: tuple[Tokens, ...]
    """Generated ids of each segment, without the prompts."""
    seconds: float
    """Wall time in seconds from when the engine draws the request to its result, including time
    spent on other requests."""
    answer: AnswerFacts | None = None
    """Additional scores of an answer in text."""


@dataclass(kw_only=True, slots=True)
class EngineStats:
    """Counters of an engine since its construction."""

    num_forward_passes: int = 0
    """Forward passes of the model, whatever their batch size."""
    num_prompt_tokens: int = 0
    """Tokens of prompts."""
    num_new_tokens: int = 0
    """Generated tokens of all results."""
    num_drafted_tokens: int = 0
    """Draft tokens proposed by the solver (`verify`)."""
    num_accepted_tokens: int = 0
    """Draft tokens accepted by the model (`verify`)."""
    usd: float = 0.0
    """Price of the tokens, in US dollars (`api`)."""


class Engine(Protocol):
    """A loaded model that decodes puzzles."""

    name: str
    """Name of the engine in `eval.engines.factory.REGISTRY`."""
    precision: PrecisionPolicy
    """Number formats of the computation."""
    device: str
    """Device of the model, or URL of the server."""
    stats: EngineStats
    """Counters."""

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """Decode puzzles and yield results in order of completion.

        Requests are drawn as slots become free, so the iterable may be infinite.

        Raises:
            ValueError: The board of a request is not that of the model, or a prompt exceeds the
                context length.
            FloatingPointError: A logit is not finite; the message names the puzzle.
        """

    def close(self) -> None:
        """Release processes and connections, if any."""
