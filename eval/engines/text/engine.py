"""Engine over a model that reads and writes text.

A `TextModel` generates replies to prompts; `TextEngine` implements `eval.engines.contract.Engine`
with it: a prompt for each sample of a puzzle, and a result once all of its samples have a reply.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol

from data.model_format.precision import PrecisionPolicy
from eval.engines.contract import AnswerFacts, EndedBy, EngineStats, Request, Result
from eval.engines.puzzle_run import output_block
from eval.engines.text.replies import ReplyLog, StoredReply
from eval.text_protocol.prompt import TextProtocol
from eval.text_protocol.score import ReplyScore, count_right_cells, majority, score_reply
from solver.boards import Board, Grid
from solver.mrv.tracer import trace
from solver.vocabulary import Tokens

PromptForm = Literal["auto", "chat", "plain"]
"""`chat`: messages; `plain`: one string; `auto`: chat if the model has a chat template."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplySampling:
    """Sampling parameters of replies."""

    num_samples: int = 1
    """Replies to each puzzle."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """Probability mass that tokens are sampled from."""
    seed: int = 0
    """Seed from which that of each reply is derived."""

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ValueError(f"samples: got {self.num_samples}, allowed is at least 1")
        if not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature: got {self.temperature}, allowed are 0 to 2")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: got {self.top_p}, allowed is above 0, up to 1")
        if self.num_samples > 1 and self.temperature == 0:
            raise ValueError(
                f"temperature: got 0 with {self.num_samples} samples, allowed is above 0: "
                "greedy samples are all equal"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prompt:
    """One prompt to send."""

    key: str
    """Puzzle hash."""
    sample: int
    """Number of the sample, from 0."""
    givens: Grid
    """Digits, uint8 (num_cells,), 0 for blank."""
    protocol: TextProtocol
    """Writes the prompt."""
    max_new_tokens: int
    """Limit of the reply."""
    seed: int
    """Seed of the sampling."""


class TextModel(Protocol):
    """A loaded model, or a server, that answers prompts."""

    name: str
    """Name of the engine."""
    precision: PrecisionPolicy
    """Number formats that it computes in."""
    form: PromptForm
    """Form of the prompts, `chat` or `plain`."""
    device: str
    """Device, or URL of the server."""
    stats: EngineStats
    """Work so far; `TextEngine` counts tokens and prices."""

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """Answer prompts, in any order; prompts are drawn as slots become free.

        Raises:
            ValueError: a prompt does not fit the model.
            OSError: the server cannot be reached, or stops answering.
        """


@dataclass(slots=True)
class _OpenPuzzle:
    request: Request
    begun: float = field(default_factory=time.perf_counter)
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
            num_shots: Solved examples before each question.
            sampling: Sampling parameters.
            log: File of replies; prompts that have a reply there are not sent again.
        """
        self.name, self.precision, self.stats = model.name, model.precision, model.stats
        self.log = log
        self._model, self._num_shots, self._sampling = model, num_shots, sampling

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        puzzles: dict[str, _OpenPuzzle] = {}
        with self.log or nullcontext():
            known = self.log.read() if self.log else {}
            finished: list[_OpenPuzzle] = []
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
        """Release the model, or the connections to the server."""
        close = getattr(self._model, "close", None)
        if close is not None:
            close()

    def _prompts(
        self,
        requests: Iterable[Request],
        known: dict[tuple[str, int], StoredReply],
        *,
        puzzles: dict[str, _OpenPuzzle],
        finished: list[_OpenPuzzle],
    ) -> Iterator[Prompt]:
        """Yield a prompt for each sample without a known reply, and open its puzzle."""
        for request in requests:
            protocol = TextProtocol(board=request.board, num_shots=self._num_shots)
            puzzle = puzzles[request.key] = _OpenPuzzle(request)
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

    def _result(self, puzzle: _OpenPuzzle) -> Result:
        replies = [puzzle.replies[sample] for sample in range(self._sampling.num_samples)]
        num_new_tokens = sum(reply.num_new_tokens for reply in replies)
        self.stats.num_new_tokens += num_new_tokens
        self.stats.num_prompt_tokens += sum(reply.num_prompt_tokens for reply in replies)
        self.stats.usd += sum(reply.usd for reply in replies)
        score = score_replies(puzzle.request.board, puzzle.request.givens, replies)
        return Result(
            key=puzzle.request.key,
            ended_by=score.ended_by,
            num_new_tokens=num_new_tokens,
            num_segments=len(replies),
            output=score.output,
            segments=(),
            seconds=time.perf_counter() - puzzle.begun,
            answer=score.answer,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PuzzleScore:
    """Score of all replies to a puzzle."""

    ended_by: EndedBy
    """Strict outcome of the majority sample (`eval.text_protocol.score.majority`)."""
    output: Tokens | None
    """Its grid as an output block."""
    answer: AnswerFacts
    """Further facts."""


def score_replies(board: Board, givens: Grid, replies: Iterable[StoredReply]) -> PuzzleScore:
    """Score the replies to one puzzle, in the order of the samples."""
    scores = [score_reply(board, givens, reply.reply) for reply in replies]
    chosen: ReplyScore = scores[majority(scores)]
    solution = trace(board, givens).solution
    assert solution is not None
    return PuzzleScore(
        ended_by=EndedBy(chosen.strict),
        output=None if chosen.strict_grid is None else output_block(board, chosen.strict_grid),
        answer=AnswerFacts(
            lenient=EndedBy(chosen.lenient),
            num_right_cells=count_right_cells(givens, chosen.lenient_grid, solution),
            num_blank_cells=int((givens == 0).sum()),
            num_samples=len(scores),
            num_solved_samples=sum(score.is_solved for score in scores),
        ),
    )


def seed_of_sample(seed: int, key: str, sample: int) -> int:
    """Return a 31-bit seed: a function of (seed, puzzle, sample)."""
    digest = hashlib.blake2b(f"{seed} {key} {sample}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> 1
