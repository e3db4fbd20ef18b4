"""The engine `vllm` for text: prompts as token ids of the model's tokenizer, replies as text."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from eval.engines.in_flight import run_in_flight
from eval.engines.options import EngineOptions
from eval.engines.text.engine import Prompt
from eval.engines.text.language_model import LanguageModel
from eval.engines.text.local_model import LocalTextModel
from eval.engines.text.replies import StoredReply
from eval.engines.vllm_runtime import VllmRuntime
from eval.text_protocol.score import Reply

_CPU_CACHE_BYTES = 1 << 30


class VllmTextModel(LocalTextModel):
    """A language model of vLLM; `arguments` of the options are passed on to vLLM."""

    name = "vllm"
    bf16_rotary = "bf16"

    def _load_model(self, model: LanguageModel, options: EngineOptions) -> None:
        self._num_in_flight = options.num_slots * options.num_replicas
        defaults: dict[str, Any] = {
            "model": str(model.path),
            "dtype": self.dtype,
            "max_num_seqs": options.num_slots,
            "data_parallel_size": options.num_replicas,
            # The context length of the model, or what the KV cache can hold if that is less.
            "max_model_len": -1,
        }
        if options.local_device.type == "cpu":
            defaults["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
        self._runtime = VllmRuntime(
            defaults, options.arguments, device=options.local_device, stats=self.stats
        )

    def generate(self, prompts: Iterable[Prompt]) -> Iterator[StoredReply]:
        """See `eval.engines.text.engine.TextModel`."""
        yield from run_in_flight(
            prompts,
            lambda prompt: self._runtime.submit(self._ask(prompt)),
            limit=self._num_in_flight,
        )

    def close(self) -> None:
        """Stop vLLM's processes."""
        self._runtime.close()

    async def _ask(self, prompt: Prompt) -> StoredReply:
        start_time = time.perf_counter()
        ids = self._encoder.encode(prompt)
        completion = await self._runtime.complete(
            ids,
            f"{prompt.key}/{prompt.sample}",
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            seed=prompt.seed,
            max_tokens=prompt.max_new_tokens,
            stop=self._encoder.stop_strings(prompt) or None,
        )
        return StoredReply(
            key=prompt.key,
            sample=prompt.sample,
            reply=Reply(text=completion.text, is_truncated=completion.finish_reason == "length"),
            num_prompt_tokens=len(ids),
            num_new_tokens=len(completion.token_ids),
            seconds=time.perf_counter() - start_time,
        )
