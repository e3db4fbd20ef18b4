"""Engine for models that read and write text.

A `TextModel` generates replies to prompts. `TextEngine` implements `eval.engines.contract.Engine`
on top of it: one prompt per sample of a puzzle, and a result once all samples have a reply.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from annotated_types import Ge, Gt, Le

from data.model_format.precision import PrecisionPolicy
from data.runtime.ranges import check_ranges
from eval.engines.contract import AnswerFacts, EngineStats, FinishReason, Request, Result
from eval.engines.puzzle_run import output_block
from eval.engines.text.replies import ReplyLog, StoredReply
from eval.text_protocol.prompt import TextProtocol
from eval.text_protocol.score import ReplyScore, count_right_cells, majority, score_reply
from solver.boards import Board, Grid
from solver.mrv.tracer import trace
from solver.vocabulary import Tokens

Temperature = Annotated[float, Ge(0), Le(2)]
"""Sampling temperature; servers of the OpenAI API reject values above 2."""
TopP = Annotated[float, Gt(0), Le(1)]
"""Cumulative probability of nucleus sampling."""
PromptForm = Literal["auto", "chat", "plain"]
"""`chat`: messages; `plain`: a single string; `auto`: `chat` if the model has a chat template."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplySampling:
    """Sampling parameters of replies."""

    num_samples: Annotated[int, Ge(1)] = 1
    """Replies to each puzzle."""
    temperature: Temperature = 0.0
    """0 is greedy."""
    top_p: TopP = 1.0
    """Cumulative probability of nucleus sampling."""
    seed: int = 0
    """Base seed of the seeds of the replies."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.num_samples > 1 and self.temperature == 0:
            raise ValueError(
                f"temperature: got 0 with {self.num_samples} samples, allowed is above 0: "
                "greedy samples are all equal"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prompt:
    """A prompt and its sampling seed."""

    key: str
    """Puzzle hash."""
    sample: int
    """Index of the sample, from 0."""
    givens: Grid
    """Digits, uint8 (num_cells,), 0 for blank."""
    protocol: TextProtocol
    """Writes the prompt."""
    max_new_tokens: int
    """Token limit of the reply."""
    seed: int
    """Sampling seed."""


class TextModel(Protocol):
    """A loaded or served model that generates replies."""

    name: str
    """Name of the engine."""
    precision: PrecisionPolicy
    """Number formats of the computation."""
    form: PromptForm
    """Form of the prompts, `chat` or `plain`."""
    device: str
    """Device, or URL of the server."""
    stats: EngineStats
    """Counters; `TextEngine` updates those of tokens and prices."""

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """Generate replies in any order; prompts are drawn as slots become free.

        Raises:
            ValueError: A prompt exceeds the context length.
            OSError: The server cannot be reached or stops responding.
        """

    def close(self) -> None:
        """Release processes and connections, if any."""


@dataclass(slots=True)
class _PendingPuzzle:
    request: Request
    start_time: float = field(default_factory=time.perf_counter)
    replies: dict[int, StoredReply] = field(default_factory=dict)


class TextEngine:
    """Engine over a `TextModel`."""

    def __init__(
        self,
        model: TextModel,
        *,
        num_shots: int,
        sampling: ReplySampling,
        log: ReplyLog | None = None,
    ) -> None:
        """Initialize the engine.

        Args:
            model: The model.
            num_shots: Number of solved examples before each question.
            sampling: Sampling parameters.
            log: Log of replies; prompts with a logged reply are not sent again.
        """
        self.name, self.precision, self.stats = model.name, model.precision, model.stats
        self.device = model.device
        self.log = log
        self._model, self._num_shots, self._sampling = model, num_shots, sampling

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        puzzles: dict[str, _PendingPuzzle] = {}
        with self.log or nullcontext():
            known = self.log.read() if self.log else {}
            finished: list[_PendingPuzzle] = []
            prompts = self._prompts(requests, known, puzzles=puzzles, finished=finished)
            for reply in self._model.generate(prompts):
                if self.log:
                    self.log.append(reply)
                puzzle = puzzles[reply.key]
                puzzle.replies[reply.sample] = reply
                if len(puzzle.replies) == self._sampling.num_samples:
                    finished.append(puzzles.pop(reply.key))
                while finished:
                    yield self._result(finished.pop())
            while finished:
                yield self._result(finished.pop())
        assert not puzzles, f"no reply for {', '.join(puzzles)}"

    def close(self) -> None:
        """See `eval.engines.contract.Engine`."""
        self._model.close()

    def _prompts(
        self,
        requests: Iterable[Request],
        known: dict[tuple[str, int], StoredReply],
        *,
        puzzles: dict[str, _PendingPuzzle],
        finished: list[_PendingPuzzle],
    ) -> Iterator[Prompt]:
        """Yield a prompt for each sample without a known reply, and register its puzzle."""
        for request in requests:
            protocol = TextProtocol(board=request.board, num_shots=self._num_shots)
            puzzle = puzzles[request.key] = _PendingPuzzle(request)
            samples = range(self._sampling.num_samples)
            puzzle.replies |= {
                sample: known[request.key, sample]
                for sample in samples
                if (request.key, sample) in known
            }
            missing = [sample for sample in samples if sample not in puzzle.replies]
            if not missing:
                finished.append(puzzles.pop(request.key))
            for sample in missing:
                yield Prompt(
                    key=request.key,
                    sample=sample,
                    givens=request.givens,
                    protocol=protocol,
                    max_new_tokens=request.caps.max_new_tokens,
                    seed=seed_of_sample(self._sampling.seed, request.key, sample),
                )

    def _result(self, puzzle: _PendingPuzzle) -> Result:
        replies = [puzzle.replies[sample] for sample in range(self._sampling.num_samples)]
        num_new_tokens = sum(reply.num_new_tokens for reply in replies)
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_prompt_tokens += sum(reply.num_prompt_tokens for reply in replies)
        self.stats.usd += sum(reply.usd for reply in replies)
        score = score_replies(puzzle.request.board, puzzle.request.givens, replies)
        return Result(
            key=puzzle.request.key,
            finish_reason=score.finish_reason,
            num_new_tokens=num_new_tokens,
            num_segments=len(replies),
            output=score.output,
            segments=(),
            seconds=time.perf_counter() - puzzle.start_time,
            answer=score.answer,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PuzzleScore:
    """Score of all replies to a puzzle."""

    finish_reason: FinishReason
    """Strict outcome of the majority sample (`eval.text_protocol.score.majority`)."""
    output: Tokens | None
    """Output block of its grid."""
    answer: AnswerFacts
    """Additional scores."""


def score_replies(board: Board, givens: Grid, replies: Iterable[StoredReply]) -> PuzzleScore:
    """Score the replies to one puzzle, given in the order of the samples."""
    scores = [score_reply(board, givens, reply.reply) for reply in replies]
    chosen: ReplyScore = scores[majority(scores)]
    solution = trace(board, givens).solution
    assert solution is not None
    return PuzzleScore(
        finish_reason=FinishReason(chosen.strict),
        output=None if chosen.strict_grid is None else output_block(board, chosen.strict_grid),
        answer=AnswerFacts(
            lenient=FinishReason(chosen.lenient),
            num_right_cells=count_right_cells(board, givens, chosen.lenient_grid, solution),
            num_blank_cells=int((givens == 0).sum()),
            num_samples=len(scores),
            num_solved_samples=sum(score.is_solved for score in scores),
        ),
    )


def seed_of_sample(seed: int, key: str, sample: int) -> int:
    """Return the 31-bit seed of a sample, derived from base seed, puzzle and index."""
    digest = hashlib.blake2b(f"{seed} {key} {sample}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1
