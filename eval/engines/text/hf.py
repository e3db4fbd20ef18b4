"""The engine `hf` for text: `model.generate` with static batches, padded on the left.

Sampling uses the Gumbel-max trick with a random generator per row, so that a sample depends on its
seed but not on the batch.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
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
from eval.engines.hf import pad_left
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
        # The other settings of the folder, such as a repetition penalty, would apply to ours.
        self._model.generation_config = GenerationConfig()
        pads = (tokenizer.pad_token_id, *self._ends, 0)
        self._pad = next(token for token in pads if token is not None)

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """See `eval.engines.text.engine.TextModel`."""
        waiting = iter(prompts)
        while batch := list(itertools.islice(waiting, self._num_slots)):
            yield from self._generate(batch)

    def _generate(self, prompts: Sequence[Prompt]) -> list[StoredReply]:
        """Generate the replies to a batch of prompts.

        The limits of the rows differ if the context length bounds them. A batch stops when a row
        reaches its limit; the unfinished rows continue as a new batch.
        """
        start_time = time.perf_counter()
        encoded = [self._encoder.encode(prompt) for prompt in prompts]
        limits = [
            self._limit(prompt, num_prompt=len(given))
            for prompt, given in zip(prompts, encoded, strict=True)
        ]
        generators = [torch.Generator().manual_seed(prompt.seed) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        active = list(range(len(prompts)))
        while active:
            new = self._generate_batch(
                [encoded[row] + written[row] for row in active],
                min(limits[row] - len(written[row]) for row in active),
                stops=self._encoder.stop_strings(prompts[0]),
                generators=[generators[row] for row in active],
            )
            for row, tokens in zip(active, new, strict=True):
                written[row] += tokens
            active = [row for row in active if len(written[row]) < limits[row]]
            active = [row for row in active if not self._is_ended(prompts[row], written[row])]
        seconds = time.perf_counter() - start_time
        return [
            self._reply(prompt, tokens=tokens, limit=limit, num_prompt=len(given), seconds=seconds)
            for prompt, tokens, limit, given in zip(prompts, written, limits, encoded, strict=True)
        ]

    @torch.inference_mode()
    def _generate_batch(
        self,
        sequences: Sequence[Sequence[int]],
        num_new_tokens: int,
        *,
        stops: Sequence[str],
        generators: Sequence[torch.Generator],
    ) -> list[list[int]]:
        """Continue sequences by at most `num_new_tokens`; ended rows are padded."""
        ids, mask = pad_left(sequences, self._pad, self._model.device)
        output: Tensor = self._model.generate(
            ids,
            attention_mask=mask,
            generation_config=GenerationConfig(
                max_new_tokens=num_new_tokens,
                do_sample=False,
                eos_token_id=self._ends or None,
                pad_token_id=self._pad,
                stop_strings=list(stops) or None,
            ),
            tokenizer=self._encoder.tokenizer,
            logits_processor=self._sampler(generators),
        )
        new = output[:, ids.shape[1] :]
        self.stats.num_forward_passes += new.shape[1]
        rows: list[list[int]] = new.tolist()
        return rows

    def _limit(self, prompt: Prompt, *, num_prompt: int) -> int:
        """Return the token limit of a reply, bounded by the context length of the model."""
        positions: int | None = getattr(self._model.config, "max_position_embeddings", None)
        if positions is None:
            return prompt.max_new_tokens
        if num_prompt >= positions:
            raise ValueError(
                f"puzzle {prompt.key}: the prompt has {num_prompt} tokens, the model takes "
                f"{positions} positions"
            )
        return min(prompt.max_new_tokens, positions - num_prompt)

    def _sampler(self, generators: Sequence[torch.Generator]) -> LogitsProcessorList:
        if self._sampling.temperature == 0:
            return LogitsProcessorList([])
        warpers: list[LogitsProcessor] = [_Scale(self._sampling.temperature)]
        if self._sampling.top_p < 1:
            warpers.append(TopPLogitsWarper(self._sampling.top_p))
        return LogitsProcessorList([*warpers, _GumbelNoise(generators)])

    def _is_ended(self, prompt: Prompt, tokens: Sequence[int]) -> bool:
        is_at_end = any(token in self._ends for token in tokens)
        return is_at_end or self._find_stop(prompt, self._decode(tokens)) is not None

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._encoder.tokenizer.decode(tokens, skip_special_tokens=True))

    def _find_stop(self, prompt: Prompt, text: str) -> str | None:
        return next((stop for stop in self._encoder.stop_strings(prompt) if stop in text), None)

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
        text = self._decode(kept)
        stop = self._find_stop(prompt, text)
        if stop is not None:
            text = text[: text.index(stop)]
            # The rest of the row is padding; the pad token need not be an end token.
            lengths = range(len(kept) + 1)
            end = bisect_left(lengths, True, key=lambda n: stop in self._decode(kept[:n]))
            kept = kept[:end]
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

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self._generators = generators

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        del input_ids
        uniform = torch.stack(
            [
                torch.rand(scores.shape[1], generator=generator, dtype=torch.float64)
                for generator in self._generators
            ]
        ).clamp(min=1e-300)
        return scores + (-torch.log(-torch.log(uniform))).to(scores)
