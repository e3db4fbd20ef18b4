"""The engine `hf` for text: `model.generate` with static batches, padded on the left.

Sampling uses the Gumbel-max trick with a random generator per row, so that a sample depends on its
seed but not on the batch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TopPLogitsWarper,
)

from data.model_format.weights import clear_read_errors
from eval.engines.options import EngineOptions
from eval.engines.text.engine import Prompt
from eval.engines.text.language_model import LanguageModel
from eval.engines.text.local_model import LocalTextModel
from eval.engines.text.replies import StoredReply
from eval.text_protocol.score import Reply


class HfTextModel(LocalTextModel):
    """A language model of transformers; `num_slots` is the batch size."""

    name = "hf"
    bf16_rotary = "fp32"

    def _load_model(self, model: LanguageModel, options: EngineOptions) -> None:
        self._num_slots = options.num_slots
        dtype = getattr(torch, self.dtype)
        with clear_read_errors(model.path):
            loaded = AutoModelForCausalLM.from_pretrained(model.path, dtype=dtype)
        self._model = cast("Any", loaded).to(options.local_device).eval()
        tokenizer = self._encoder.tokenizer
        ends = self._model.generation_config.eos_token_id
        ends = tokenizer.eos_token_id if ends is None else ends
        self._ends: list[int] = [ends] if isinstance(ends, int) else list(ends or [])
        if not all(isinstance(end, int) for end in self._ends):
            raise ValueError(f"{model.path}: eos_token_id: got {ends!r}, allowed are token ids")
        pads = (tokenizer.pad_token_id, *self._ends, 0)
        self._pad = next(token for token in pads if token is not None)

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """See `eval.engines.text.engine.TextModel`."""
        waiting = iter(prompts)
        while batch := list(itertools.islice(waiting, self._num_slots)):
            yield from self._generate(batch)

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[Prompt]) -> list[StoredReply]:
        start_time = time.perf_counter()
        encoded = [self._encoder.encode(prompt) for prompt in prompts]
        width = max(map(len, encoded))
        ids = torch.full((len(encoded), width), self._pad)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(encoded):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        device = self._model.device
        limit = self._limit(prompts[0], width=width)
        stops = self._encoder.stop_strings(prompts[0])
        output: Tensor = self._model.generate(
            ids.to(device),
            attention_mask=mask.to(device),
            generation_config=GenerationConfig(
                max_new_tokens=limit,
                do_sample=False,
                eos_token_id=self._ends or None,
                pad_token_id=self._pad,
                stop_strings=stops or None,
            ),
            tokenizer=self._encoder.tokenizer,
            logits_processor=self._sampler(prompts),
        )
        self.stats.num_forward_passes += output.shape[1] - width
        seconds = time.perf_counter() - start_time
        return [
            self._reply(
                prompt,
                tokens=row[width:].tolist(),
                limit=limit,
                num_prompt=len(given),
                seconds=seconds,
            )
            for prompt, row, given in zip(prompts, output, encoded, strict=True)
        ]

    def _limit(self, prompt: Prompt, *, width: int) -> int:
        """Return the token limit of a reply, bounded by the context length of the model."""
        positions: int | None = getattr(self._model.config, "max_position_embeddings", None)
        if positions is None:
            return prompt.max_new_tokens
        if width >= positions:
            raise ValueError(
                f"puzzle {prompt.key}: the prompt has {width} tokens, the model takes {positions} "
                "positions"
            )
        return min(prompt.max_new_tokens, positions - width)

    def _sampler(self, prompts: Sequence[Prompt]) -> LogitsProcessorList:
        if self._sampling.temperature == 0:
            return LogitsProcessorList([])
        warpers: list[LogitsProcessor] = [_Scale(self._sampling.temperature)]
        if self._sampling.top_p < 1:
            warpers.append(TopPLogitsWarper(self._sampling.top_p))
        return LogitsProcessorList([*warpers, _GumbelNoise([p.seed for p in prompts])])

    def _reply(
        self,
        prompt: Prompt,
        *,
        tokens: list[int],
        limit: int,
        num_prompt: int,
        seconds: float,
    ) -> StoredReply:
        ends = [index for index, token in enumerate(tokens) if token in self._ends]
        kept = tokens[: ends[0] + 1] if ends else tokens
        text = self._encoder.tokenizer.decode(kept, skip_special_tokens=True)
        stop = next((s for s in self._encoder.stop_strings(prompt) if s in text), None)
        if stop is not None:
            text = text[: text.index(stop)]
        is_truncated = not ends and stop is None and len(kept) >= limit
        return StoredReply(
            key=prompt.key,
            sample=prompt.sample,
            reply=Reply(text=text, is_truncated=is_truncated),
            num_prompt_tokens=num_prompt,
            num_new_tokens=len(kept),
            seconds=seconds,
        )


class _Scale(LogitsProcessor):
    """Divide logits by a temperature."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        del input_ids
        return scores / self._temperature


class _GumbelNoise(LogitsProcessor):
    """Add Gumbel noise, so that the argmax is a sample of the softmax distribution."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        del input_ids
        uniform = torch.stack(
            [
                torch.rand(scores.shape[1], generator=generator, dtype=torch.float64)
                for generator in self._generators
            ]
        ).clamp(min=1e-300)
        return scores + (-torch.log(-torch.log(uniform))).to(scores)
