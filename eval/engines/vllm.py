"""The `vllm` engine: vLLM with token ids as input and output.

Each puzzle is a coroutine that sends one request per segment. `num_slots` puzzles are in flight;
vLLM batches their requests continuously, so that the next segment joins the batch as soon as its
prompt is known. Stop tokens are given as ids; vLLM loads no tokenizer and no generation config.

`llama` and `qwen3` run on vLLM's native model classes, `gpt_neox` on its Transformers backend;
`VllmEngine.backend` names the class. In bf16, weights and the residual stream are bf16 as well
(`VllmEngine.precision`), unlike in `eval.network`. In fp32, tokens agree with the other engines
except for ties within rounding. vLLM has no FlashAttention for fp32 and falls back to slower
kernels.

Replicas use the data parallelism of vLLM: each is a process with its own GPU (or share of the CPUs)
and batch, and vLLM distributes the requests. Tensor parallelism is not used: all supported models
fit on one GPU, where it would only add communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch

from data.model_format.precision import PrecisionPolicy
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.in_flight import run_in_flight
from eval.engines.options import EngineOptions, with_bf16_weights
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.run_queue import begin_run
from eval.engines.vllm_runtime import VllmRuntime, check_platform, quiet_start
from eval.network.model_folder import ModelFolder
from solver.vocabulary import DECODING_STOPS, Tokens

_MAX_CPU_CACHE_BYTES = 1 << 30


class VllmEngine:
    """Engine that runs vLLM.

    Attributes:
        backend: Model class and version of vLLM.
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
            folder: The model.
            precision: Number formats.
            device: `cpu` or `cuda`; an installation of vLLM supports one of them.
            num_slots: Number of puzzles in flight per replica.
            num_replicas: Data-parallel replicas, each on its own GPU, or all on the CPU (for
                tests).
            arguments: Additional engine arguments of vLLM.

        Raises:
            ImportError: vLLM is not installed.
            ValueError: vLLM is installed for another device, or does not support the model.
        """
        is_bf16 = precision.activations == "bf16"
        # vLLM also rounds the rotary cos/sin cache.
        self.precision = with_bf16_weights(precision, rotary="bf16")
        self.device = str(device)
        self.stats = EngineStats()
        self._num_in_flight = num_slots * num_replicas
        self._num_ids, self._max_positions = folder.vocabulary.size, folder.max_positions
        # Ids beyond the board's vocabulary (padding rows of the output matrix) are never sampled.
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
        """Stop vLLM's processes; also called at interpreter exit."""
        self._runtime.close()

    async def _decode_puzzle(self, run: PuzzleRun) -> Result:
        num_segments = 0
        while run.finish_reason is None:
            self.stats.num_prompt_tokens += len(run.prompt)
            completion = await self._runtime.complete(
                run.prompt.tolist(),
                f"{run.request.key}/{num_segments}",
                temperature=0.0,
                max_tokens=run.token_budget,
                stop_token_ids=list(DECODING_STOPS),
                ignore_eos=True,
                detokenize=False,
                allowed_token_ids=self._allowed_ids,
            )
            run.end_segment(cast("Tokens", np.array(completion.token_ids, dtype=np.uint16)))
            num_segments += 1
        return run.result()


def _check_head_size(folder: ModelFolder, device: torch.device) -> None:
    """Check the head size, which vLLM would reject on the first request only."""
    if device.type == "cpu":
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        allowed = CPUAttentionBackend.get_supported_head_sizes()
        if folder.network.head_size not in allowed:
            raise ValueError(
                f"{folder.path}: head size: got {folder.network.head_size}, allowed by vLLM on a "
                f"CPU are {', '.join(map(str, allowed))}"
            )


def _cpu_cache_bytes(folder: ModelFolder, *, num_slots: int) -> int:
    """Return the size of the KV cache: all slots, up to a limit, but at least two sequences."""
    network = folder.network
    sequence = folder.max_positions * 2 * 4 * network.num_layers
    sequence *= network.num_kv_heads * network.head_size
    return max(2 * sequence, min(num_slots * sequence, _MAX_CPU_CACHE_BYTES))
