"""What an evaluation writes down: its puzzles, its settings, one row for each puzzle that ended.

Every class here is one form of JSON object, versioned by `SCHEMA`. What depends on speed, on the
order in which puzzles ended or on the machine is in `Cost` and `Session` alone: all else is equal
for equal settings, however often a run was interrupted and into how many parts it was divided.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

import numpy as np

from data.model_format.precision import PrecisionPolicy
from data.runtime.schema import from_plain
from eval.engines.contract import AnswerFacts, Caps, EndedBy, EvaluationMode, Result
from solver.boards import get_board
from solver.vocabulary import Tokens, Vocabulary

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledPuzzle:
    """A puzzle to evaluate, and what is known of it."""

    key: str
    """Puzzle hash: `solver.puzzles.puzzle_id` as 16 hex digits."""
    givens: str
    """Cells in row-major order, `.` for a blank, as `solver.puzzles.format_grid` writes them."""
    cot_length: int
    """Tokens of the solver's CoT."""
    rating: float | None
    """Rating that the list states."""
    groups: dict[str, str]
    """Label of the group that it counts in, for each way of grouping: `cot_length`, `rating`,
    `target`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Work and time; of a row, what was spent since the row before it, so that sums are totals."""

    wall_seconds: float = 0.0
    """Time since the row before it in its session, or since the session began to decode."""
    num_forward_passes: int = 0
    """Calls of the model, of whatever shape."""
    num_prompt_tokens: int = 0
    """Tokens that were given to the model."""
    num_drafted_tokens: int = 0
    """Tokens that the solver proposed (`verify`)."""
    num_accepted_tokens: int = 0
    """Proposed tokens that were the model's own (`verify`)."""
    usd: float = 0.0
    """Price of the tokens, in US dollars (`api`)."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            **{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)}
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ResultRow:
    """One line of `results.jsonl`: a puzzle that ended."""

    puzzle: SampledPuzzle
    """The puzzle; its fields are those of the line itself."""
    ended_by: EndedBy
    """Why the decoding ended."""
    num_new_tokens: int
    """Generated tokens over all segments."""
    num_segments: int
    """Segments begun."""
    output: Tokens | None
    """Ids of the output block, if there is one: enough to score the row again."""
    seconds: float
    """From the first to the last token of the puzzle, others in flight included."""
    cost: Cost
    """What it took."""
    answer: AnswerFacts | None = None
    """Further facts of an answer in text or of an imported grid; written only where there are."""

    @classmethod
    def of_result(cls, puzzle: SampledPuzzle, result: Result, *, cost: Cost) -> ResultRow:
        """Write down a result."""
        return cls(
            puzzle=puzzle,
            ended_by=result.ended_by,
            num_new_tokens=result.num_new_tokens,
            num_segments=result.num_segments,
            output=result.output,
            seconds=result.seconds,
            cost=cost,
            answer=result.answer,
        )

    @property
    def key(self) -> str:
        """Puzzle hash."""
        return self.puzzle.key

    @property
    def is_solved(self) -> bool:
        """Whether the output block is the solution."""
        return self.ended_by is EndedBy.SOLVED

    def to_json(self) -> dict[str, Any]:
        """Plain form; `seconds` and `cost` come last."""
        return {
            "schema": SCHEMA,
            **asdict(self.puzzle),
            "ended_by": str(self.ended_by),
            "num_new_tokens": self.num_new_tokens,
            "num_segments": self.num_segments,
            "output": None if self.output is None else self.output.tolist(),
            "seconds": self.seconds,
            "cost": asdict(self.cost),
            **({} if self.answer is None else {"answer": asdict(self.answer)}),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any], *, board: str) -> ResultRow:
        """Read the plain form.

        Raises:
            ValueError: another schema, or a field that is missing, unknown or of another type.
            OverflowError: an id that the vocabulary does not have room for.
        """
        line = from_plain(_Line, record, schema=SCHEMA)
        dtype = Vocabulary(get_board(board)).dtype
        names = [f.name for f in fields(cls) if f.name not in ("puzzle", "output")]
        return cls(
            puzzle=SampledPuzzle(**{f.name: getattr(line, f.name) for f in fields(SampledPuzzle)}),
            output=None if line.output is None else cast("Tokens", np.array(line.output, dtype)),
            **{name: getattr(line, name) for name in names},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line(SampledPuzzle):
    """Form of a line of `results.jsonl`: the fields of `ResultRow`."""

    ended_by: EndedBy
    num_new_tokens: int
    num_segments: int
    output: tuple[int, ...] | None
    seconds: float
    cost: Cost
    answer: AnswerFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """The model that was evaluated."""

    name: str
    """Name of its folder."""
    digest: str
    """Digest of its weights; of its name where the weights are not at hand."""
    model_type: str
    """Family as transformers names it; `api` or `imported` where that is not known."""
    num_parameters: int | None
    """Parameters, embeddings included; None where they are not known."""
    facts: dict[str, Any]
    """`data.model_format.facts.ModelFacts` as plain values: training data, tokens, seed, ..."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataRecord:
    """Where the puzzles came from."""

    name: str
    """Name of the list or of the data set."""
    digest: str
    """Digest of all of it."""
    sample_digest: str
    """Digest of the sampled puzzles: equal ones mean the same test set."""
    num_usable: int
    """Puzzles that could be sampled: solvable, each once. Only chosen ones are looked at for a
    second solution, and those that have one are not counted."""
    excluded: dict[str, int]
    """Rows that could not, by reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRecord:
    """The `eval.sampling.selection.SamplingConfig` of an evaluation, defaults filled in."""

    kind: str
    """`random`, `targets`, `hardest`, `buckets` or `all`."""
    count: int | None
    """Puzzles, of each target or bucket where there are some; None for all."""
    seed: int
    """Seed of the choice."""
    targets: tuple[int, ...] = ()
    """CoT lengths aimed at."""
    bucket_by: str | None = None
    """What the buckets divide."""
    check_unique: bool = True
    """Whether puzzles with more than one solution were left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpread:
    """How close the puzzles picked for a target length are to it."""

    target: int
    """CoT length aimed at."""
    num_puzzles: int
    """Puzzles picked."""
    min_cot_length: int | None
    """Shortest CoT picked; None where there is none."""
    max_cot_length: int | None
    """Longest CoT picked."""
    is_sparse: bool
    """Fewer puzzles than wanted, or some that are far from the target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtocolRecord:
    """The text protocol of an evaluation, and how replies were sampled."""

    version: int
    """`eval.text_protocol.prompt.VERSION`."""
    digest: str
    """Digest of what a model reads, the puzzle apart."""
    num_shots: int
    """Solved examples before the question."""
    form: str
    """`chat`: messages; `plain`: one string, for models without a chat template."""
    num_samples: int
    """Replies to each puzzle."""
    temperature: float | None
    """Temperature of the sampling; 0 is greedy; None if unknown, as of imported replies."""
    top_p: float | None
    """Probability mass that tokens are sampled from; None if unknown."""
    seed: int | None
    """Seed from which that of each reply is derived; None if unknown."""
    request_fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the requests to a server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One start of the program for an evaluation."""

    started_at: str
    """ISO 8601, UTC."""
    part: str | None
    """`i/n` for one part of several."""
    device: str
    """Where the model computed."""
    num_slots: int
    """Puzzles or segments in flight at most."""
    versions: dict[str, str]
    """Versions of python, sudocot and the libraries that decide the numbers; and, under `commit`,
    the commit of sudocot, where it is run from a checkout (`data.runtime.code_commit`); under
    `environment`, variables that can change the last bits (`data.runtime.environment`)."""
    num_replicas: int = 1
    """Copies of the model that shared the puzzles."""
    engine_args: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """`evaluation.json`: what the results of a folder are the results of."""

    board: str
    """Board of the puzzles."""
    mode: EvaluationMode
    """What the model writes."""
    model: ModelRecord
    """The model."""
    data: DataRecord
    """The puzzles."""
    sampling: SamplingRecord
    """How they were chosen."""
    spreads: tuple[TargetSpread, ...]
    """With target lengths: what was found for each."""
    num_sampled: int
    """Puzzles chosen, of all parts together."""
    caps: Caps
    """Limits of a puzzle."""
    engine: str
    """Name of the engine, or `import`."""
    precision: PrecisionPolicy
    """Number formats that the engine computes in."""
    keeps_tokens: bool = False
    """Whether what the model generates is kept in `tokens.jsonl`."""
    protocol: ProtocolRecord | None = None
    """How an answer in text was asked for; None for models that write token ids."""
    sessions: tuple[Session, ...] = field(default=())
    """Every start of the program, in order."""

    def identity(self) -> dict[str, Any]:
        """What must be equal for results to belong together.

        That is everything but the sessions; of the number formats the name of the policy, from
        which the others follow.
        """
        record = self.to_json()
        del record["sessions"]
        return {**record, "precision": self.precision.name}

    def to_json(self) -> dict[str, Any]:
        """Plain form, as JSON gives it back."""
        record = asdict(self)
        record["sampling"]["targets"] = list(self.sampling.targets)
        record["spreads"] = list(record["spreads"])
        record["sessions"] = list(record["sessions"])
        return {"schema": SCHEMA, **record}
