"""Records of an evaluation: its settings, its puzzles and one row per finished puzzle.

Each class defines the schema of a JSON object, versioned by `SCHEMA`. Only `Cost`, `Session` and
`seconds` depend on speed, scheduling or hardware; all other values are deterministic, regardless of
interruptions and of the number of parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

import numpy as np

from data.model_format.precision import PrecisionPolicy
from data.runtime.schema import from_plain
from eval.engines.contract import AnswerFacts, Caps, EvaluationMode, FinishReason, Result
from solver.boards import get_board
from solver.vocabulary import Tokens, Vocabulary

SCHEMA = 1
IMPORT_ENGINE = "import"
"""Engine of evaluations that consist of imported predictions."""
STORED_FINISH_REASON = "ended_by"
"""Name in files of the fields `finish_reason` and `finish_reasons`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledPuzzle:
    """A puzzle to evaluate."""

    key: str
    """Puzzle hash: `solver.puzzles.puzzle_id` as 16 hex digits."""
    givens: str
    """Cells in row-major order, `.` for a blank (`solver.puzzles.format_grid`)."""
    cot_length: int
    """Tokens of the solver's CoT."""
    rating: float | None
    """Rating stated by the puzzle list, if any."""
    groups: dict[str, str]
    """Group label by kind of grouping: `cot_length`, `rating`, `target`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Work and time; rows store the difference to the previous row, so that sums are totals."""

    wall_seconds: float = 0.0
    """Time since the previous row of the session, or since the start of decoding."""
    num_forward_passes: int = 0
    """Forward passes of the model."""
    num_prompt_tokens: int = 0
    """Tokens of prompts."""
    num_drafted_tokens: int = 0
    """Draft tokens proposed by the solver (`verify`)."""
    num_accepted_tokens: int = 0
    """Draft tokens accepted by the model (`verify`)."""
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
    """One line of `results.jsonl`: the result of a puzzle."""

    puzzle: SampledPuzzle
    """The puzzle; its fields are stored inline."""
    finish_reason: FinishReason
    """Why decoding ended."""
    num_new_tokens: int
    """Generated tokens over all segments."""
    num_segments: int
    """Number of segments, including an unfinished last one."""
    output: Tokens | None
    """Ids of the output block, or None; sufficient for scoring the row again."""
    seconds: float
    """Wall time in seconds from when the engine draws the request to its result, including time
    spent on other requests."""
    cost: Cost
    """Work and time."""
    answer: AnswerFacts | None = None
    """Additional scores of an answer in text or of an imported grid; omitted if None."""

    @classmethod
    def of_result(cls, puzzle: SampledPuzzle, result: Result, *, cost: Cost) -> ResultRow:
        """Return the row of a result."""
        return cls(
            puzzle=puzzle,
            finish_reason=result.finish_reason,
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
        return self.finish_reason is FinishReason.SOLVED

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "schema": SCHEMA,
            **asdict(self.puzzle),
            STORED_FINISH_REASON: str(self.finish_reason),
            "num_new_tokens": self.num_new_tokens,
            "num_segments": self.num_segments,
            "output": None if self.output is None else self.output.tolist(),
            "seconds": self.seconds,
            "cost": asdict(self.cost),
            **({} if self.answer is None else {"answer": asdict(self.answer)}),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any], *, board: str) -> ResultRow:
        """Read a JSON object.

        Raises:
            ValueError: The schema version is not supported, or a field is missing, unknown or
                of the wrong type.
            OverflowError: An id exceeds the range of the vocabulary.
        """
        line = from_plain(_Line, record, schema=SCHEMA)
        dtype = Vocabulary(get_board(board)).dtype
        names = [f.name for f in fields(cls) if f.name not in ("puzzle", "finish_reason", "output")]
        return cls(
            puzzle=SampledPuzzle(**{f.name: getattr(line, f.name) for f in fields(SampledPuzzle)}),
            finish_reason=line.ended_by,
            output=None if line.output is None else cast("Tokens", np.array(line.output, dtype)),
            **{name: getattr(line, name) for name in names},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line(SampledPuzzle):
    """Schema of a line of `results.jsonl`: the fields of `ResultRow` with those of its puzzle."""

    ended_by: FinishReason
    num_new_tokens: int
    num_segments: int
    output: tuple[int, ...] | None
    seconds: float
    cost: Cost
    answer: AnswerFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """The evaluated model."""

    name: str
    """Name of its folder."""
    digest: str
    """Digest of its weights, or of its name if the weights are not available."""
    model_type: str
    """`model_type` of transformers; `api` or `imported` if unknown."""
    num_parameters: int | None
    """Number of parameters, including embeddings; None if unknown."""
    facts: dict[str, Any]
    """`data.model_format.facts.ModelFacts` as a JSON object: training data, tokens, seed, ..."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataRecord:
    """Source of the puzzles."""

    name: str
    """Name of the puzzle list or data set."""
    digest: str
    """Digest of all its puzzles."""
    sample_digest: str
    """Digest of the sampled puzzles; equal digests mean equal test sets."""
    num_usable: int
    """Distinct solvable puzzles to sample from. Uniqueness is checked for sampled puzzles only;
    those with several solutions are not counted."""
    excluded: dict[str, int]
    """Number of excluded rows by reason."""
    puzzle_column: str | None = None
    """Column of the puzzles in a table, if it was named."""
    answer_column: str | None = None
    """Column of the answers in a table, if it was named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRecord:
    """The `eval.sampling.selection.SamplingConfig` of an evaluation with resolved defaults."""

    kind: str
    """`random`, `targets`, `hardest`, `buckets` or `all`."""
    count: int | None
    """Number of puzzles, per target or bucket if applicable; None for all."""
    seed: int
    """Sampling seed."""
    targets: tuple[int, ...] = ()
    """Target CoT lengths."""
    bucket_by: str | None = None
    """Quantity that defines the buckets."""
    check_unique: bool = True
    """Whether puzzles with several solutions were excluded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpread:
    """Range of CoT lengths of the puzzles sampled for a target length."""

    target: int
    """Target CoT length."""
    num_puzzles: int
    """Number of sampled puzzles."""
    min_cot_length: int | None
    """Shortest CoT; None without puzzles."""
    max_cot_length: int | None
    """Longest CoT; None without puzzles."""
    is_sparse: bool
    """Whether there are fewer puzzles than requested, or some are far from the target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtocolRecord:
    """Text protocol and sampling parameters of an evaluation."""

    version: int
    """`eval.text_protocol.prompt.VERSION`."""
    digest: str
    """Digest of the prompt template."""
    num_shots: int
    """Number of solved examples before the question."""
    form: str
    """`chat`: messages; `plain`: a single string, for models without a chat template."""
    num_samples: int
    """Replies per puzzle."""
    temperature: float | None
    """Sampling temperature; 0 is greedy; None if unknown, as for imported replies."""
    top_p: float | None
    """Cumulative probability of nucleus sampling; None if unknown."""
    seed: int | None
    """Base seed of the seeds of the replies; None if unknown."""
    request_fields: dict[str, Any] = field(default_factory=dict)
    """Additional fields of requests to a server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One process that worked on an evaluation."""

    started_at: str
    """ISO 8601, UTC."""
    part: str | None
    """`i/n` for one part of several."""
    device: str
    """Device of the model, or URL of the server."""
    num_slots: int
    """Number of segments, puzzles or requests in flight."""
    versions: dict[str, str]
    """Versions of Python, sudocot and numerical libraries; `commit` is the commit of sudocot if it
    runs from a checkout (`data.runtime.code_commit`), and `environment` lists environment variables
    that can affect the last bits of the results (`data.runtime.environment`)."""
    num_replicas: int = 1
    """Data-parallel replicas of the model."""
    engine_args: dict[str, Any] = field(default_factory=dict)
    """Engine-specific arguments."""
    model: str = ""
    """Name of the model's folder, or of the model on the hub or server, which may differ from the
    name of the evaluation; empty if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationConfig:
    """Content of `evaluation.json`: the settings of an evaluation."""

    board: str
    """Board of the puzzles."""
    mode: EvaluationMode
    """Output of the model."""
    model: ModelRecord
    """The model."""
    data: DataRecord
    """Source of the puzzles."""
    sampling: SamplingRecord
    """How the puzzles were sampled."""
    spreads: tuple[TargetSpread, ...]
    """Range of CoT lengths sampled for each target length."""
    num_sampled: int
    """Number of sampled puzzles of all parts."""
    caps: Caps
    """Token limits of a puzzle."""
    engine: str
    """Name of the engine, or `IMPORT_ENGINE`."""
    precision: PrecisionPolicy
    """Number formats of the computation."""
    keeps_tokens: bool = False
    """Whether generated ids are stored in `tokens.jsonl`."""
    protocol: ProtocolRecord | None = None
    """Text protocol; None for models that write token ids."""
    sessions: tuple[Session, ...] = field(default=())
    """All processes that worked on the evaluation, in order."""

    @property
    def is_imported(self) -> bool:
        """Whether the predictions are those of another program, whose limits are unknown."""
        return self.engine == IMPORT_ENGINE

    @property
    def has_known_weights(self) -> bool:
        """Whether the model's digest is that of its weights, not of a name stated by the user."""
        return not self.is_imported and (self.engine, self.mode) != ("api", "text")

    def identity(self) -> dict[str, Any]:
        """Return the settings that must agree between the sessions and parts of an evaluation.

        All settings except for the sessions; the number formats are represented by the name of
        their policy.
        """
        record = self.to_json()
        del record["sessions"]
        return {**record, "precision": self.precision.name}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        record = asdict(self)
        record["sampling"]["targets"] = list(self.sampling.targets)
        record["spreads"] = list(record["spreads"])
        record["sessions"] = list(record["sessions"])
        return {"schema": SCHEMA, **record}


def stored_fields(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields under their names in files; a `dict_factory` for `dataclasses.asdict`."""
    names = dict.fromkeys(("finish_reason", "finish_reasons"), STORED_FINISH_REASON)
    return {names.get(name, name): value for name, value in fields}
