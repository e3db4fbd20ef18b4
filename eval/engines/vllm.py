"""The `vllm` engine: vLLM with token ids in and out.

Each puzzle is a coroutine: its segments are requests one after another, a CoT is one request. As
many puzzles as there are slots are in flight, and vLLM batches what they ask for, so that the next
segment joins the batch as soon as its prompt is known. Stop tokens are ids of our vocabulary;
vLLM gets no tokenizer and reads no generation settings from the folder.

What computes: `llama` and `qwen3` run on classes of vLLM's own, `gpt_neox` through its backend for
models of transformers; `VllmEngine.backend` says which. Formats differ from our network's in bf16:
weights and the residual stream are bf16 as well (`VllmEngine.precision`). In fp32 tokens agree, but
for ties below rounding. vLLM has no FlashAttention for fp32 and falls back to slower kernels.

Replicas are the data parallelism of vLLM: each is a process with a GPU (or a share of the CPUs) and
a batch of its own, and vLLM spreads the requests among them. A model is never split: what this
project trains fits a GPU whole, so that tensor parallelism could only add traffic to each token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from data.model_format.precision import PrecisionPolicy
from eval.engines.begin import begin_run
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.in_flight import run_in_flight
from eval.engines.options import EngineOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.vllm_runtime import VllmRuntime, check_platform, quiet_start
from eval.network.model_folder import ModelFolder
from solver.vocabulary import DECODING_STOPS, Tokens

if TYPE_CHECKING:
    from vllm import SamplingParams

_MAX_CPU_CACHE_BYTES = 1 << 30


class VllmEngine:
    """Engine over vLLM.

    Attributes:
        backend: class that computes the network, and vLLM's version.
    """

    name = "vllm"

    def __init__(
        self,
        folder: ModelFolder,
        *,
        precision: PrecisionPolicy,
        device: torch.device,
        num_slots: int,
        num_replicas: int = 1,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Start vLLM, which takes about a minute.

        Args:
            folder: the model.
            precision: formats to compute in.
            device: `cpu` or `cuda`; vLLM is installed for one of them.
            num_slots: puzzles in flight, on each replica.
            num_replicas: copies of the model, among which vLLM spreads the puzzles: each on a GPU
                of its own, or all on the CPU, which only tests them.
            arguments: Further arguments of vLLM.

        Raises:
            ImportError: vLLM is not installed.
            ValueError: it is installed for another device, or cannot compute this model.
        """
        is_bf16 = precision.activations == "bf16"
        # The table of sines and cosines is rounded too.
        rounded = replace(precision, weights="bf16", rotary="bf16")
        self.precision = rounded if is_bf16 else precision
        self.stats = EngineStats()
        self._num_in_flight = num_slots * num_replicas
        self._num_ids, self._max_positions = folder.vocabulary.size, folder.max_positions
        # Rows of the output matrix that mean nothing are not to be chosen.
        has_more_rows = folder.network.vocab_size > self._num_ids
        self._allowed_ids = list(range(self._num_ids)) if has_more_rows else None
        with quiet_start():
            check_platform(device, num_replicas=num_replicas)
            _check_head_size(folder, device)
        defaults: dict[str, Any] = {
            "model": str(folder.path),
            "skip_tokenizer_init": True,
            "dtype": "bfloat16" if is_bf16 else "float32",
            "max_model_len": folder.max_positions,
            "max_num_seqs": num_slots,
            "data_parallel_size": num_replicas,
            "enable_prefix_caching": False,
        }
        if device.type == "cpu":
            defaults["kv_cache_memory_bytes"] = _cpu_cache_bytes(folder, num_slots=num_slots)
        self._runtime = VllmRuntime(defaults, arguments or {}, device=device, stats=self.stats)
        self.backend = self._runtime.backend

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> VllmEngine:
        """See `eval.engines.factory`."""
        return cls(
            folder,
            precision=options.precision,
            device=options.local_device,
            num_slots=options.num_slots,
            num_replicas=options.num_replicas,
            arguments=options.arguments,
        )

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        runs = (
            begin_run(request, num_ids=self._num_ids, max_positions=self._max_positions)
            for request in requests
        )
        submit = self._runtime.submit
        for result in run_in_flight(
            runs, lambda run: submit(self._decode_puzzle(run)), limit=self._num_in_flight
        ):
            self.stats.num_new_tokens += result.num_new_tokens
            yield result

    def close(self) -> None:
        """Stop vLLM's processes; the end of the program does it too."""
        self._runtime.close()

    async def _decode_puzzle(self, run: PuzzleRun) -> Result:
        num_segments = 0
        while run.ended_by is None:
            self.stats.num_prompt_tokens += len(run.prompt)
            prompt = {"prompt_token_ids": run.prompt.tolist()}
            name = f"{run.request.key}/{num_segments}"
            outputs = self._runtime.llm.generate(prompt, self._sampling(run.allowance), name)
            ids = [output.outputs[0].token_ids async for output in outputs][-1]
            if (
                self._runtime.has_invalid_logits
            ):  # vLLM counts such segments when they end, without their names
                raise FloatingPointError(
                    f"puzzle {run.request.key}, or one that ended beside it: the model's logits "
                    "are not finite"
                )
            run.end_segment(cast("Tokens", np.array(ids, dtype=np.uint16)))
            num_segments += 1
        return run.result()

    def _sampling(self, max_tokens: int) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            stop_token_ids=list(DECODING_STOPS),
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=self._allowed_ids,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _check_head_size(folder: ModelFolder, device: torch.device) -> None:
    """Check what vLLM would report on the first request only."""
    if device.type == "cpu":
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        allowed = CPUAttentionBackend.get_supported_head_sizes()
        if folder.network.head_size not in allowed:
            raise ValueError(
                f"{folder.path}: head size: got {folder.network.head_size}, allowed by vLLM on a "
                f"CPU are {', '.join(map(str, allowed))}"
            )


def _cpu_cache_bytes(folder: ModelFolder, *, num_slots: int) -> int:
    """Memory of keys and values: one sequence at least, as vLLM demands, else as far as it goes."""
    network = folder.network
    sequence = folder.max_positions * 2 * 4 * network.num_layers
    sequence *= network.num_kv_heads * network.head_size
    return max(2 * sequence, min(num_slots * sequence, _MAX_CPU_CACHE_BYTES))
