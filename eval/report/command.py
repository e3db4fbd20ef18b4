"""Command that reproduces an evaluation, written from its settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from data.model_format.precision import UNKNOWN_PRECISION
from data.puzzle_sources.columns import ColumnOptions
from eval.engines.factory import REGISTRY
from eval.results.records import EvaluationConfig, ProtocolRecord, SamplingRecord
from eval.sampling.selection import SamplingConfig


def reproducing_command(config: EvaluationConfig, *, out: str) -> str:
    """Return the `sudocot eval run` of an evaluation, empty for imported predictions.

    Folders of models and data are given by name in place of paths. Options that do not affect the
    results, such as the device, are omitted.

    Args:
        config: Settings of the evaluation.
        out: Value of `--out`.
    """
    if config.engine not in REGISTRY:
        return ""
    name = config.model.name
    model = config.sessions[-1].model if config.sessions else ""
    words = ["sudocot", "eval", "run", "--model", model or name]
    if model not in ("", name):
        words += ["--name", name]
    data = config.data
    columns = ColumnOptions(puzzle_column=data.puzzle_column, answer_column=data.answer_column)
    words += ["--data", *data.name.split(", "), *columns.words]
    words += _sampling_words(config.sampling)
    words += ["--engine", config.engine]
    if config.sessions:
        session = config.sessions[-1]
        if config.engine == "api":
            words += ["--base-url", session.device]
        if session.engine_args:
            arguments = session.engine_args.items()
            words += ["--engine-args", *(f"{name}={json.dumps(arg)}" for name, arg in arguments)]
    if config.precision.name != UNKNOWN_PRECISION.name:
        words += ["--precision", config.precision.name]
    words += ["--max-new-tokens", str(config.caps.max_new_tokens)]
    if config.protocol is None:
        words += ["--max-segment-tokens", str(config.caps.max_segment_tokens)]
        if config.mode != config.model.facts.get("mode", config.mode):
            words += ["--mode", config.mode]
    else:
        words += _protocol_words(config.protocol)
    if config.keeps_tokens:
        words.append("--keep-tokens")
    return shlex.join([*words, "--out", out])


def _sampling_words(sampling: SamplingRecord) -> Iterator[str]:
    default = SamplingConfig()
    yield from ("--sample", sampling.kind)
    if sampling.count is not None:
        yield from ("--count", str(sampling.count))
    if sampling.targets:
        yield from ("--targets", *map(str, sampling.targets))
    if sampling.bucket_by not in (None, default.bucket_by):
        yield from ("--bucket-by", str(sampling.bucket_by))
    if sampling.seed != default.seed:
        yield from ("--seed", str(sampling.seed))
    if not sampling.check_unique:
        yield "--no-check-unique"


def _protocol_words(protocol: ProtocolRecord) -> Iterator[str]:
    # Model folders of sudocot are evaluated with token ids by default.
    yield from ("--protocol", "text")
    values = {
        "--shots": protocol.num_shots,
        "--samples": protocol.num_samples if protocol.num_samples > 1 else None,
        "--temperature": protocol.temperature,
        "--top-p": protocol.top_p if protocol.top_p != 1 else None,
        "--reply-seed": protocol.seed,
        "--prompt-form": protocol.form if protocol.form == "plain" else None,
    }
    for option, value in values.items():
        if value:
            yield from (option, str(value))
