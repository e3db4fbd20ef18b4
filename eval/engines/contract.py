"""The contract of all engines: requests go in, results come out, each as its puzzle ends.

Decoding is greedy; of equal logits the smallest id wins. Every engine gives the same result on the
same checkpoint in fp32, whatever the order and number of requests in flight (design, "Evaluation
engines, one contract").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from data.model_format.facts import Mode
from data.model_format.precision import PrecisionPolicy
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


class EndedBy(StrEnum):
    """Why the decoding of a puzzle ended; the first five need no cap."""

    SOLVED = "solved"
    """The output block is well formed, in row-major order, and the solution."""
    WRONG = "wrong"
    """The output block is well formed and not the solution."""
    MALFORMED = "malformed"
    """A stop token came, but what it closes is no output block and no summary."""
    LOOP = "loop"
    """A prompt came back: greedy decoding would repeat itself for ever."""
    SEGMENT_CAP = "segment_cap"
    """The new tokens of one segment ran out."""
    TOTAL_CAP = "total_cap"
    """The new tokens of the puzzle ran out."""
    CONTEXT = "context"
    """The positions of the model ran out."""
    CHANGED_GIVENS = "changed_givens"
    """Text and imported grids: a complete grid that does not keep the givens."""
    TRUNCATED = "truncated"
    """Text: the tokens of the reply ran out before an answer."""
    REFUSED = "refused"
    """Text: no answer; the model or a content filter declined."""


EvaluationMode = Mode | Literal["text", "grid"]
"""What a model writes: `cot` or `scot` in token ids, `text`, or a `grid` that was imported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """Limits of one puzzle, exact to the token."""

    max_new_tokens: int
    """Generated tokens over all segments."""
    max_segment_tokens: int
    """Generated tokens of one segment, the summary that ends it included."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_segment_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is at least 1")


def paper_caps(mode: Mode, *, is_hardest: bool = False) -> Caps:
    """Return the paper's caps; a CoT is one segment and has one cap."""
    if mode == "cot":
        return Caps(max_new_tokens=COT_MAX_NEW_TOKENS, max_segment_tokens=COT_MAX_NEW_TOKENS)
    total = HARDEST_MAX_NEW_TOKENS if is_hardest else SCOT_MAX_NEW_TOKENS
    return Caps(max_new_tokens=total, max_segment_tokens=SCOT_MAX_SEGMENT_TOKENS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Request:
    """One puzzle to decode."""

    key: str
    """Puzzle hash; the result carries it."""
    board: Board
    """Board of the puzzle."""
    givens: Grid
    """Digits, uint8 (num_cells,), 0 for blank."""
    mode: EvaluationMode
    """`cot`: one segment; `scot`: a summary ends a segment and is the prompt of the next; `text`:
    the text protocol."""
    caps: Caps
    """Limits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerFacts:
    """What is known of an answer in text or of an imported grid beyond why it ended."""

    lenient: EndedBy
    """Outcome by the lenient parser; of a grid, its outcome."""
    num_right_cells: int
    """Blank cells that the grid (of the lenient parser) fills as the solution does."""
    num_blank_cells: int
    """Blank cells of the puzzle."""
    num_samples: int = 1
    """Replies to the puzzle."""
    num_solved_samples: int = 1
    """Replies that are solved (by the strict parser)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Result:
    """What a model made of a puzzle."""

    key: str
    """That of the request."""
    ended_by: EndedBy
    """Class of the end."""
    num_new_tokens: int
    """Generated tokens over all segments."""
    num_segments: int
    """Segments begun."""
    output: Tokens | None
    """Generated ids from the last `<output>` of the last segment, when `</output>` ended it;
    enough to score the result again."""
    segments: tuple[Tokens, ...]
    """Generated ids of each segment, without the prompts."""
    seconds: float
    """From the first to the last token of the puzzle, others in flight included."""
    answer: AnswerFacts | None = None
    """Further facts of an answer in text."""


@dataclass(kw_only=True, slots=True)
class EngineStats:
    """Work of an engine since it was made."""

    num_forward_passes: int = 0
    """Calls of the model, of whatever shape."""
    num_prompt_tokens: int = 0
    """Tokens that were given."""
    num_new_tokens: int = 0
    """Tokens of results."""
    num_drafted_tokens: int = 0
    """Tokens that the solver proposed (`verify`)."""
    num_accepted_tokens: int = 0
    """Proposed tokens that were the model's own (`verify`)."""
    usd: float = 0.0
    """Price of the tokens, in US dollars (`api`)."""


class Engine(Protocol):
    """A model that is loaded and ready to decode."""

    name: str
    """Its name in `eval.engines.factory`."""
    precision: PrecisionPolicy
    """Number formats that it really computes in."""
    stats: EngineStats
    """Work so far."""

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """Decode the requests; results come in the order in which the puzzles end.

        Requests are drawn as slots get free, so the iterable may be endless.

        Raises:
            ValueError: a request does not fit the model: its board, or a prompt that is longer
                than the model's positions.
            FloatingPointError: the model's logits are not finite; the message names the key.
        """
