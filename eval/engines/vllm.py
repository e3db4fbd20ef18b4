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

import asyncio
import atexit
import contextlib
import gc
import logging
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from data.model_format.precision import PrecisionPolicy
from eval.engines.begin import begin_run
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.puzzle_run import PuzzleRun
from eval.network.model_folder import ModelFolder
from solver.vocabulary import STOP_TOKENS, Tokens

if TYPE_CHECKING:
    from vllm import SamplingParams

_MAX_CPU_CACHE_BYTES = 1 << 30
_COUNT_NANS = "VLLM_COMPUTE_NANS_IN_LOGITS"
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Below errors it warns of what is meant: eager mode, no tokenizer, no Triton on a CPU.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONWARNINGS": "ignore",
}

logger = logging.getLogger(__name__)


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
    ) -> None:
        """Start vLLM, which takes a minute or so.

        Args:
            folder: the model.
            precision: formats to compute in.
            device: `cpu` or `cuda`; vLLM is installed for one of them.
            num_slots: puzzles in flight, on each replica.
            num_replicas: copies of the model, among which vLLM spreads the puzzles: each on a GPU
                of its own, or all on the CPU, which only tests them.

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
        # A thread of its own keeps vLLM busy while the caller writes results, and works where the
        # caller has an event loop already, as in a notebook.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._is_broken = False
        with _quiet_start():
            _check_platform(folder, device, num_replicas=num_replicas)
            arguments: dict[str, Any] = {
                "model": str(folder.path),
                "skip_tokenizer_init": True,
                "generation_config": "vllm",
                "dtype": "bfloat16" if is_bf16 else "float32",
                "max_model_len": folder.max_positions,
                "max_num_seqs": num_slots,
                "data_parallel_size": num_replicas,
                "enable_prefix_caching": False,
                "enforce_eager": device.type == "cpu",
                "seed": 0,
                "use_tqdm_on_load": False,
                "disable_log_stats": True,
            }
            if device.type == "cpu":
                arguments["kv_cache_memory_bytes"] = _cpu_cache_bytes(folder, num_slots=num_slots)
            self._llm = self._run(_start(arguments, self._record_step)).result()
        atexit.register(self.close)  # or Python tears vLLM down in an order that it dislikes
        model_config = self._llm.vllm_config.model_config
        is_native = not model_config.using_transformers_backend()
        library = "vLLM" if is_native else "transformers, through vLLM"
        self.backend = f"{model_config.architecture} of {library} {_version()}"
        logger.info("vllm: %s, %s", self.backend, arguments["dtype"])

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        waiting = iter(requests)
        pending: set[Future[Result]] = set()
        try:
            while True:
                while len(pending) < self._num_in_flight:
                    request = next(waiting, None)
                    if request is None:
                        break
                    run = begin_run(
                        request, num_ids=self._num_ids, max_positions=self._max_positions
                    )
                    pending.add(self._run(self._decode_puzzle(run)))
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    self.stats.num_new_tokens += result.num_new_tokens
                    yield result
        finally:
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """Stop vLLM's processes; the end of the program does it too."""
        if self._llm is None:
            return
        atexit.unregister(self.close)
        self._run(_stop(self._llm)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        with warnings.catch_warnings():
            # vLLM leaves a socket context to the garbage collector, which warns of it.
            warnings.simplefilter("ignore", ResourceWarning)
            self._llm = None
            gc.collect()

    def _record_step(self, num_not_finite: int) -> None:
        self.stats.num_forward_passes += 1
        self._is_broken |= num_not_finite > 0

    def _run(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _decode_puzzle(self, run: PuzzleRun) -> Result:
        num_segments = 0
        while run.ended_by is None:
            self.stats.num_prompt_tokens += len(run.prompt)
            prompt = {"prompt_token_ids": run.prompt.tolist()}
            name = f"{run.request.key}/{num_segments}"
            outputs = self._llm.generate(prompt, self._sampling(run.allowance), name)
            ids = [output.outputs[0].token_ids async for output in outputs][-1]
            if self._is_broken:  # vLLM counts such segments when they end, without their names
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
            stop_token_ids=list(STOP_TOKENS),
            ignore_eos=True,
            detokenize=False,
            allowed_token_ids=self._allowed_ids,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Set what vLLM and its processes read at start-up, where the user has not set it."""
    os.environ.setdefault(_COUNT_NANS, "1")
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    if "VLLM_LOGGING_LEVEL" in added:
        logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), _hidden_main():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Let processes start without the main module, which they would import anew.

    They need nothing of it, and vLLM on a CPU fails where it has imported llvmlite: vLLM asks every
    object of every module for its variables, and one there answers anything with a function.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _version() -> str:
    import vllm

    return str(vllm.__version__)


def _check_platform(folder: ModelFolder, device: torch.device, *, num_replicas: int) -> None:
    from vllm.platforms import current_platform

    if current_platform.device_type != device.type:
        raise ValueError(
            f"device: got {device.type}, the vLLM that is installed computes on "
            f"{current_platform.device_type}"
        )
    if device.type == "cuda" and num_replicas > torch.cuda.device_count():
        raise ValueError(
            f"data_parallel: got {num_replicas}, allowed is one for each of "
            f"{torch.cuda.device_count()} GPUs"
        )
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


async def _start(arguments: dict[str, Any], record_step: Callable[[int], None]) -> Any:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class StepLogger(StatLoggerBase):  # type: ignore[misc]
        """Passes on what vLLM reports of each step."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            del vllm_config, engine_index

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, *_others: Any, **_named: Any
        ) -> None:
            del scheduler_stats
            record_step(iteration_stats.num_corrupted_reqs if iteration_stats else 0)

        def log_engine_initialized(self) -> None:
            pass

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[StepLogger])


async def _stop(llm: Any) -> None:
    llm.shutdown()
    # Its tasks end before the loop does.
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
