"""Options, settings and engine of `sudocot eval run` for models that write text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from data.model_format.facts import FACTS_FILE
from data.model_format.precision import UNKNOWN_PRECISION, PrecisionPolicy
from data.runtime.ranges import Seed
from eval.engines.contract import Caps
from eval.engines.factory import REGISTRY, check_engine, make_text_model
from eval.engines.options import EngineOptions
from eval.engines.text.engine import PromptForm, ReplySampling, Temperature, TextEngine, TopP
from eval.engines.text.replies import ReplyLog
from eval.results.records import EvaluationConfig, ModelRecord, ProtocolRecord
from eval.sampling.selection import Sample
from eval.text_protocol.prompt import VERSION, TextProtocol
from solver.boards import get_board

MAX_NEW_TOKENS = 16_384
"""Default token limit of a reply, including reasoning."""
_SAMPLED_TEMPERATURE = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOptions:
    """Options of the text protocol."""

    protocol: Literal["auto", "text", "ids"] = "auto"
    """text: text prompts, for any language model; ids: token ids, for models trained by sudocot;
    auto: ids if the folder has a sudocot.json."""
    shots: Annotated[int, Ge(0), Le(4)] = 0
    """Number of solved examples before the question (text)."""
    samples: Annotated[int, Ge(1), Le(10000)] = 1
    """Replies per puzzle; with more than one, the majority is scored and pass@k reported (text)."""
    temperature: Temperature | None = None
    """Sampling temperature; by default 0 (greedy), or 1 with several samples (text)."""
    top_p: TopP = 1.0
    """Cumulative probability of nucleus sampling (text)."""
    reply_seed: Seed = 0
    """Sampling seed (text)."""
    prompt_form: PromptForm = "auto"
    """chat: messages; plain: a single string; auto: chat if there is a chat template (text)."""

    @property
    def sampling(self) -> ReplySampling:
        """Sampling parameters with resolved defaults."""
        temperature = self.temperature
        if temperature is None:
            temperature = 0.0 if self.samples == 1 else _SAMPLED_TEMPERATURE
        return ReplySampling(
            num_samples=self.samples,
            temperature=temperature,
            top_p=self.top_p,
            seed=self.reply_seed,
        )


def uses_text(model: str, *, engine: str, protocol: str) -> bool:
    """Return whether to use the text protocol instead of token ids.

    Raises:
        ValueError: The model or the engine does not support the protocol.
    """
    has_facts = (Path(model) / FACTS_FILE).is_file()
    if not has_facts and (Path(model) / "final" / FACTS_FILE).is_file():
        raise ValueError(f"model: {model} is a run folder, its model is {Path(model) / 'final'}")
    if protocol == "ids" or (protocol == "auto" and has_facts):
        if not has_facts:
            raise ValueError(
                f"{model}: no {FACTS_FILE}, so not a model folder of sudocot; --protocol text "
                "evaluates any language model (docs/your-model.md)"
            )
        return False
    if REGISTRY[engine].text is None:
        engines = ", ".join(name for name, entry in REGISTRY.items() if entry.text)
        reason = f"no {FACTS_FILE}" if not has_facts else "got --protocol text"
        if not Path(model).exists():
            reason = "no such folder, and no name of `sudocot models`"
        raise ValueError(
            f"{model}: {reason}, so it needs the text protocol, with --engine {engines}; "
            f"the engine {engine} decodes token ids of models trained by sudocot "
            "(docs/your-model.md)"
        )
    return True


def text_settings(
    model: str,
    sample: Sample,
    *,
    engine: str,
    board: str,
    name: str | None,
    text: TextOptions,
    max_new_tokens: int | None,
    precision: PrecisionPolicy,
    request_fields: Mapping[str, Any],
) -> EvaluationConfig:
    """Return the settings of an evaluation, including the digest of a local model.

    Raises:
        ValueError: An option is out of range, or the model has no tokenizer or chat template.
        OSError: The model does not exist.
    """
    record, form = _describe_model(model, engine=engine, name=name, form=text.prompt_form)
    limit = MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens
    protocol = TextProtocol(board=get_board(board), num_shots=text.shots)
    sampling = text.sampling
    return EvaluationConfig(
        board=board,
        mode="text",
        model=record,
        data=sample.data,
        sampling=sample.record,
        spreads=sample.spreads,
        num_sampled=len(sample.puzzles),
        caps=Caps(max_new_tokens=limit, max_segment_tokens=limit),
        engine=engine,
        precision=UNKNOWN_PRECISION if engine == "api" else precision,
        protocol=ProtocolRecord(
            version=VERSION,
            digest=protocol.digest,
            num_shots=text.shots,
            form=form,
            num_samples=sampling.num_samples,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            request_fields=dict(request_fields) if engine == "api" else {},
        ),
    )


def make_text_engine(
    model: str,
    settings: EvaluationConfig,
    options: EngineOptions,
    *,
    sampling: ReplySampling,
    out: Path,
) -> TextEngine:
    """Load a model into an engine that logs replies to the evaluation folder."""
    assert settings.protocol is not None
    protocol = settings.protocol
    check_engine(settings.engine, options)
    form: PromptForm = "plain" if protocol.form == "plain" else "chat"
    loaded = make_text_model(settings.engine, model, options, sampling=sampling, form=form)
    return TextEngine(loaded, num_shots=protocol.num_shots, sampling=sampling, log=ReplyLog(out))


def _describe_model(
    model: str, *, engine: str, name: str | None, form: PromptForm
) -> tuple[ModelRecord, PromptForm]:
    if engine == "api":
        record = ModelRecord(
            name=name or model,
            digest=hashlib.sha256(f"api {model}".encode()).hexdigest(),
            model_type="api",
            num_parameters=None,
            facts={},
        )
        return record, "plain" if form == "plain" else "chat"
    from eval.engines.text.language_model import LanguageModel, PromptEncoder

    opened = LanguageModel.open(model)
    record = ModelRecord(
        name=name or opened.name,
        digest=opened.digest,
        model_type=opened.family,
        num_parameters=opened.num_parameters,
        facts={},
    )
    return record, PromptEncoder(opened, form).form
