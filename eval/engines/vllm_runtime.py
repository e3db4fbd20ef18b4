"""Start-up, event loop and shutdown of vLLM, shared by the engines for ids and for text."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import difflib
import gc
import logging
import math
import os
import sys
import types
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from eval.engines.contract import EngineStats
from eval.engines.loop_thread import LoopThread

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput

_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Hides warnings about intended settings: eager mode, no tokenizer, no Triton on a CPU.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONWARNINGS": "ignore",
}
_RESERVED = ("model", "dtype", "skip_tokenizer_init", "data_parallel_size")
_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


class VllmRuntime:
    """A running instance of vLLM.

    Attributes:
        llm: `vllm.v1.engine.async_llm.AsyncLLM`.
        backend: Model class and version of vLLM.
    """

    def __init__(
        self,
        defaults: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        device: torch.device,
        stats: EngineStats,
    ) -> None:
        """Start vLLM, which takes about a minute.

        Args:
            defaults: Engine arguments.
            arguments: Engine arguments of the user, which take precedence.
            device: `cpu` or `cuda`; an installation of vLLM supports one of them.
            stats: Counters to update.

        Raises:
            ImportError: vLLM is not installed.
            ValueError: vLLM is installed for another device, an argument is unknown or reserved, or
                vLLM does not start with this model and memory.
        """
        self._stats = stats
        with quiet_start():
            check_platform(device, num_replicas=defaults.get("data_parallel_size", 1))
            _check_arguments(arguments)
            common = {
                "generation_config": "vllm",
                "enforce_eager": device.type == "cpu",
                "seed": 0,
                "use_tqdm_on_load": False,
                "disable_log_stats": True,
            }
            self._loop = LoopThread("vllm")
            try:
                self.llm = self.submit(
                    _start({**common, **defaults, **arguments}, self._count_step)
                ).result()
            except BaseException as error:
                self._loop.close()
                # Failures in vLLM's process are logged there and raised here as a RuntimeError.
                if type(error) is RuntimeError:
                    raise ValueError(f"vllm: it did not start: {error}") from error
                raise
        # Interpreter shutdown would otherwise destroy vLLM's objects in an order that logs errors.
        atexit.register(self.close)
        model_config = self.llm.vllm_config.model_config
        is_native = not model_config.using_transformers_backend()
        library = "vLLM" if is_native else "transformers, through vLLM"
        self.backend = f"{model_config.architecture} of {library} {_version()}"
        logger.info("vllm: %s, %s", self.backend, defaults["dtype"])

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Schedule a coroutine on vLLM's event loop."""
        return self._loop.submit(work)

    async def complete(
        self, ids: Sequence[int], request_id: str, **sampling: Any
    ) -> CompletionOutput:
        """Generate one completion.

        Args:
            ids: Prompt.
            request_id: Unique name of the request; errors state it.
            sampling: Arguments of `vllm.SamplingParams`.

        Raises:
            FloatingPointError: A logit of a generated token is NaN or positive infinity.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # The log-probability of a token is NaN if a logit of its position is NaN or infinity.
        # vLLM's own check (VLLM_COMPUTE_NANS_IN_LOGITS) counts NaNs only, for whole batches.
        parameters = SamplingParams(
            logprobs=0, flat_logprobs=True, output_kind=RequestOutputKind.FINAL_ONLY, **sampling
        )
        outputs = self.llm.generate({"prompt_token_ids": list(ids)}, parameters, request_id)
        completion: CompletionOutput = [output.outputs[0] async for output in outputs][-1]
        if not math.isfinite(completion.cumulative_logprob or 0.0):
            raise FloatingPointError(f"puzzle {request_id}: the model's logits are not finite")
        return completion

    def close(self) -> None:
        """Stop vLLM's processes; also called at interpreter exit."""
        if self.llm is None:
            return
        atexit.unregister(self.close)
        self.submit(_shut_down(self.llm)).result()
        self._loop.close()
        with warnings.catch_warnings():
            # vLLM leaves a socket context to the garbage collector, which emits a warning.
            warnings.simplefilter("ignore", ResourceWarning)
            self.llm = None
            gc.collect()

    def _count_step(self) -> None:
        self._stats.num_forward_passes += 1


def check_platform(device: torch.device, *, num_replicas: int) -> None:
    """Check that the installed vLLM supports a device.

    Raises:
        ValueError: It does not, or there are fewer GPUs than replicas.
        ImportError: vLLM is not installed.
    """
    if device.index:
        raise ValueError(
            f"device: got {device}, but vLLM uses the first visible GPU; "
            f"set CUDA_VISIBLE_DEVICES={device.index}"
        )
    from vllm.platforms import current_platform

    if current_platform.device_type != device.type:
        raise ValueError(
            f"device: got {device.type}, allowed with the installed vLLM is "
            f"{current_platform.device_type}"
        )
    if device.type == "cuda" and num_replicas > torch.cuda.device_count():
        raise ValueError(
            f"data_parallel: got {num_replicas}, allowed is one for each of "
            f"{torch.cuda.device_count()} GPUs"
        )


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    from vllm import AsyncEngineArgs

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    for name in arguments:
        if name in _RESERVED:
            raise ValueError(f"engine_args: got {name}, which is set by other options")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"engine_args: got {name}, not an argument of vLLM{guess}")


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Set environment variables for a quiet start of vLLM, unless the user has set them."""
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
    """Replace the main module, so that spawned processes do not import it again.

    They do not need it. On a CPU, vLLM fails if it has imported llvmlite, since vLLM inspects the
    attributes of all objects of all modules, and an object of llvmlite has every attribute.
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


async def _start(arguments: dict[str, Any], count_step: Callable[[], None]) -> Any:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class StepLogger(StatLoggerBase):  # type: ignore[misc]
        """Counts the engine steps."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            del vllm_config, engine_index

        def record(self, *_stats: Any, **_named: Any) -> None:
            count_step()

        def log_engine_initialized(self) -> None:
            pass

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[StepLogger])


async def _shut_down(llm: Any) -> None:
    llm.shutdown()
