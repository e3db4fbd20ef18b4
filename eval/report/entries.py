"""Evaluations of a report, read from their folders, and the puzzle samples they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from data.runtime.options import split_named_folder
from eval.inspect.first_wrong import WrongToken, first_wrong, segment_tokens_of
from eval.network.families import COMPILED_FAMILY
from eval.results.certificates import Certificates, read_certificates
from eval.results.folder import EvaluationFolder
from eval.results.records import EvaluationConfig, ResultRow
from eval.results.summary import GroupSummary, Summary
from eval.sampling.cohorts import cohort_of
from solver.boards import get_board
from solver.puzzles import parse_puzzle
from solver.vocabulary import Tokens

TRACES_FOLDER = "traces"
"""Folder of trace pages in the report's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """One evaluation; without slots, for `cached_property`."""

    label: str
    """Unique name in the report."""
    path: Path
    """Evaluation folder."""
    config: EvaluationConfig
    """Settings."""
    summary: Summary
    """Statistics."""
    solved: dict[str, bool]
    """Whether each puzzle was solved, by puzzle hash."""
    unsolved: tuple[ResultRow, ...]
    """Results of the unsolved puzzles, by CoT length."""
    certificates: Certificates | None
    """Certificates, if `sudocot eval certify` was run."""
    num_traces: int
    """Failed puzzles, those with the shortest CoT, that get a trace page."""
    traces: str
    """Trace pages, relative to the report, without the puzzle hash and the extension."""

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Facts on the unsolved puzzles; the solver traces those whose tokens were stored.

        Raises:
            ValueError: The stored tokens are damaged.
        """
        generated: dict[str, tuple[Tokens, ...]] = {}
        if self.config.keeps_tokens:
            folder = EvaluationFolder(self.path, self.config)
            generated = folder.generated(row.key for row in self.unsolved)
        certified = self.certificates.puzzles if self.certificates else ()
        margins = {certificate.key: certificate.wrong_margin for certificate in certified}
        failures: list[Failure] = []
        num_shown = 0
        for row in self.unsolved:
            wrong = self._first_wrong(row, generated.get(row.key))
            is_shown = wrong is not None and num_shown < self.num_traces
            num_shown += is_shown
            failures.append(
                Failure(
                    key=row.key,
                    puzzle=row.puzzle.givens,
                    cot_length=row.puzzle.cot_length,
                    reason=str(row.finish_reason),
                    num_new_tokens=row.num_new_tokens,
                    wrong=wrong,
                    wrong_margin=margins.get(row.key),
                    trace=f"{self.traces}-{row.key}.html" if is_shown else "",
                )
            )
        return tuple(failures)

    def _first_wrong(self, row: ResultRow, segments: Sequence[Tokens] | None) -> WrongToken | None:
        if segments is None:
            return None
        board, givens = parse_puzzle(row.puzzle.givens, board=get_board(self.config.board))
        segment_tokens = segment_tokens_of(self.config)
        return first_wrong(board, givens, segments, segment_tokens=segment_tokens)

    @property
    def sample(self) -> PuzzleSample:
        """Puzzles of the evaluation."""
        config = self.config
        return PuzzleSample(
            board=config.board,
            data_name=config.data.name,
            data_digest=config.data.digest,
            sample_digest=config.data.sample_digest,
            sampling=_describe_sampling(config),
            cohort=cohort_of(config).name,
            num_sampled=config.num_sampled,
        )

    @property
    def is_reference(self) -> bool:
        """Whether the model is a compiled one, which serves as reference and is not ranked."""
        model = self.config.model
        return model.model_type == COMPILED_FAMILY or "compiled" in model.facts.get("training", {})

    @property
    def by_length(self) -> list[GroupSummary]:
        """Statistics by target CoT length if puzzles were sampled so, else by bucket."""
        kind = "target" if self.config.sampling.kind == "targets" else "cot_length"
        return [group for group in self.summary.groups if group.kind == kind]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An unsolved puzzle of an evaluation."""

    key: str
    """Puzzle hash."""
    puzzle: str
    """The puzzle on one line."""
    cot_length: int
    """Tokens of the solver's CoT."""
    reason: str
    """Why decoding ended."""
    num_new_tokens: int
    """Generated tokens."""
    wrong: WrongToken | None = None
    """The first token that is not the solver's, if tokens were kept."""
    wrong_margin: float | None = None
    """Its margin over the likeliest other token, if `sudocot eval certify` was run."""
    trace: str = ""
    """Its trace page, relative to the report, if one was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PuzzleSample:
    """Set of puzzles on which evaluations are ranked."""

    board: str
    """Board of the puzzles."""
    data_name: str
    """Name of the puzzle list."""
    data_digest: str
    """Digest of the puzzle list."""
    sample_digest: str
    """Digest of the sampled puzzles."""
    sampling: str
    """Description of the sampling."""
    cohort: str
    """Name of the cohort (`eval.sampling.cohorts`)."""
    num_sampled: int
    """Number of puzzles."""

    @property
    def identity(self) -> tuple[str, str]:
        """Board and digest of the puzzles: samples with equal identity are ranked together."""
        return self.board, self.sample_digest


def read_entries(
    runs: Sequence[str], *, allow_partial: bool = False, num_traces: int = 0
) -> list[Entry]:
    """Read evaluation folders, each given as FOLDER or NAME=FOLDER.

    Args:
        runs: The folders.
        allow_partial: Accept unfinished evaluations.
        num_traces: Failed puzzles of each, those with the shortest CoT, that get a trace page.

    Raises:
        ValueError: There are no folders, a folder or label is repeated, or an evaluation is
            unfinished or has no results.
        OSError: A folder contains no evaluation.
    """
    if not runs:
        raise ValueError("runs: got none, allowed is at least one evaluation folder")
    named = [split_named_folder(run) for run in runs]
    repeated = [path for path, n in Counter(path.resolve() for _, path in named).items() if n > 1]
    if repeated:
        raise ValueError(f"runs: got {repeated[0]} twice, allowed is each folder once")
    folders = [EvaluationFolder.open(path) for _, path in named]
    labels = _labels([(label, folder) for (label, _), folder in zip(named, folders, strict=True)])
    return [
        _read_entry(
            folder,
            label,
            allow_partial=allow_partial,
            num_traces=num_traces,
            traces=f"{TRACES_FOLDER}/{number}",
        )
        for number, (folder, label) in enumerate(zip(folders, labels, strict=True), 1)
    ]


def _read_entry(
    folder: EvaluationFolder, label: str, *, allow_partial: bool, num_traces: int, traces: str
) -> Entry:
    num_rows, num_sampled = len(folder.rows), folder.config.num_sampled
    if num_rows == 0:
        raise ValueError(f"{folder.path}: no puzzle has a result yet")
    if num_rows < num_sampled and not allow_partial:
        raise ValueError(
            f"{folder.path}: {num_rows:,} of {num_sampled:,} puzzles have a result; finish it, or "
            "take it unranked with --partial"
        )
    return Entry(
        label=label,
        path=folder.path,
        config=folder.config,
        summary=folder.summary,
        solved={row.key: row.is_solved for row in folder.rows},
        unsolved=tuple(
            sorted(
                (row for row in folder.rows if not row.is_solved),
                key=lambda row: (row.puzzle.cot_length, row.key),
            )
        ),
        certificates=read_certificates(folder.path),
        num_traces=num_traces,
        traces=traces,
    )


def _labels(named: Sequence[tuple[str | None, EvaluationFolder]]) -> list[str]:
    """Return the given labels, or model names, with the name of the folder if ambiguous."""
    given = [label or folder.config.model.name for label, folder in named]
    counts = Counter(given)
    labels = [
        name if label or counts[name] == 1 else f"{name} ({folder.path.resolve().name})"
        for name, (label, folder) in zip(given, named, strict=True)
    ]
    repeated = [label for label, n in Counter(labels).items() if n > 1]
    if repeated:
        raise ValueError(
            f"runs: two are called {repeated[0]!r}, allowed are different names: NAME=FOLDER"
        )
    return labels


def _describe_sampling(config: EvaluationConfig) -> str:
    several = "" if config.sampling.check_unique else ", including puzzles with several solutions"
    return _describe_choice(config) + several


def _describe_choice(config: EvaluationConfig) -> str:
    sampling = config.sampling
    if sampling.kind == "hardest":
        return f"the {config.num_sampled:,} hardest by CoT length"
    if sampling.kind == "all":
        return "all puzzles"
    each = "" if sampling.count is None else f"{sampling.count:,}"
    chosen = {
        "random": f"{config.num_sampled:,} at random",
        "targets": f"the {each} nearest to each of {len(sampling.targets)} CoT lengths",
        "buckets": f"{each} of each bucket of {sampling.bucket_by}",
    }[sampling.kind]
    return f"{chosen}, seed {sampling.seed}"


def group_by_sample(entries: Sequence[Entry]) -> list[tuple[PuzzleSample, list[Entry]]]:
    """Group evaluations by puzzles, in the order of first occurrence."""
    groups: dict[tuple[str, str], tuple[PuzzleSample, list[Entry]]] = {}
    for entry in entries:
        sample = entry.sample
        groups.setdefault(sample.identity, (sample, []))[1].append(entry)
    return list(groups.values())
