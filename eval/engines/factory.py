"""Registry of engines: maps names to classes, which are imported on demand.

An engine decodes token ids (`EngineEntry.ids`, for models with sudocot's vocabulary), text
(`EngineEntry.text`, for any language model), or both. Each class has a class method `load`:

    ids   load(folder: ModelFolder, options: EngineOptions) -> Engine
    text  load(model: str, options: EngineOptions, sampling: ReplySampling, form: PromptForm)
          -> TextModel
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from eval.engines.options import EngineOptions, ServerOptions

if TYPE_CHECKING:
    import torch

    from data.model_format.precision import PrecisionPolicy
    from eval.engines.contract import Engine
    from eval.engines.text.engine import PromptForm, ReplySampling, TextModel
    from eval.network.model_folder import ModelFolder
    from eval.network.types import TokenNetwork


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineEntry:
    """Classes of an engine, as `module:Class`."""

    ids: str | None = None
    """Class that decodes token ids."""
    text: str | None = None
    """Class that generates replies in text."""
    has_arguments: bool = False
    """Whether the engine accepts `--engine-args`."""


REGISTRY: dict[str, EngineEntry] = {
    "hf": EngineEntry(ids="eval.engines.hf:HfEngine", text="eval.engines.text.hf:HfTextModel"),
    "segment": EngineEntry(ids="eval.engines.segment:SegmentEngine"),
    "verify": EngineEntry(ids="eval.engines.verify.engine:VerifyEngine"),
    "vllm": EngineEntry(
        ids="eval.engines.vllm:VllmEngine",
        text="eval.engines.text.vllm:VllmTextModel",
        has_arguments=True,
    ),
    "api": EngineEntry(
        ids="eval.engines.api:ApiEngine",
        text="eval.engines.text.api:ApiTextModel",
        has_arguments=True,
    ),
}
LocalEngineName = Literal["hf", "segment", "verify", "vllm"]
"""Engines that load the model on this machine."""
EngineName = Literal[LocalEngineName, "api"]
"""All names of `REGISTRY`."""
LOCAL_ENGINES: tuple[str, ...] = get_args(LocalEngineName)


def make_engine(
    name: str,
    folder: ModelFolder,
    *,
    precision: PrecisionPolicy,
    device: torch.device | None,
    num_slots: int,
    num_replicas: int = 1,
    arguments: Mapping[str, Any] | None = None,
    server: ServerOptions | None = None,
) -> Engine:
    """Load a model into an engine for token ids.

    Args:
        name: A name of `REGISTRY`.
        folder: The model.
        precision: Number formats.
        device: Device of the model; None for `api`.
        num_slots: Number of segments decoded concurrently.
        num_replicas: Data-parallel replicas of the model; more than one for `vllm` only.
        arguments: Engine-specific arguments.
        server: Options of the server, for `api`.

    Raises:
        ValueError: Unknown engine or unsupported option.
        ImportError: The library of the engine is not installed.
    """
    options = EngineOptions(
        precision=precision,
        device=device,
        num_slots=num_slots,
        num_replicas=num_replicas,
        arguments=arguments or {},
        server=server,
    )
    return load_engine(name, folder, options)


def load_engine(name: str, folder: ModelFolder, options: EngineOptions) -> Engine:
    """Load a model into an engine for token ids; see `make_engine`."""
    check_engine(name, options)
    engine: Engine = _load_class(name, REGISTRY[name].ids).load(folder, options)
    return engine


def make_text_model(
    name: str,
    model: str,
    options: EngineOptions,
    *,
    sampling: ReplySampling,
    form: PromptForm,
) -> TextModel:
    """Load a language model into an engine for text.

    Args:
        name: A name of `REGISTRY`.
        model: Folder, or name on the hub or of the server.
        options: Options of the engine.
        sampling: Sampling parameters of replies.
        form: Form of the prompts.

    Raises:
        ValueError: Unknown engine, or one that does not support text or an option.
        OSError: The model does not exist, or the server cannot be reached.
        ImportError: The library of the engine is not installed.
    """
    check_engine(name, options)
    if REGISTRY[name].text is None:
        allowed = ", ".join(key for key, entry in REGISTRY.items() if entry.text)
        raise ValueError(f"engine: got {name}, allowed for the text protocol are {allowed}")
    kind = _load_class(name, REGISTRY[name].text)
    loaded: TextModel = kind.load(model, options, sampling=sampling, form=form)
    return loaded


def check_engine(name: str, options: EngineOptions) -> None:
    """Check the options of an engine before loading it.

    Raises:
        ValueError: Unknown engine or unsupported option.
    """
    if name not in REGISTRY:
        raise ValueError(f"engine: got {name!r}, allowed are {', '.join(REGISTRY)}")
    check_replicas(name, options.num_replicas)
    if options.arguments and not REGISTRY[name].has_arguments:
        raise ValueError(
            f"engine_args: got {', '.join(options.arguments)}, the engine {name} takes none"
        )


def make_network(
    folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
) -> TokenNetwork:
    """Load the weights of a model folder into the network class of its family.

    Raises:
        ValueError: The family is not implemented, or the files have changed since the folder was
            opened and are no longer valid.
    """
    from eval.network.compiled.config import CompiledConfig
    from eval.network.compiled.network import CompiledNetwork
    from eval.network.network import Network

    kind = CompiledNetwork if isinstance(folder.network_config, CompiledConfig) else Network
    return kind(folder, precision=precision, device=device)


def check_replicas(name: str, num_replicas: int) -> None:
    """Check the number of data-parallel replicas.

    Raises:
        ValueError: The engine does not support it.
    """
    if num_replicas < 1:
        raise ValueError(f"data_parallel: got {num_replicas}, allowed is at least 1")
    if num_replicas > 1 and name != "vllm":
        raise ValueError(
            f"data_parallel: got {num_replicas}, allowed with engine {name} is 1; the engine vllm "
            "distributes puzzles over GPUs, and --shard i/n evaluates a part with any engine"
        )


def _load_class(name: str, path: str | None) -> Any:
    assert path is not None, name
    module, _, kind = path.partition(":")
    return getattr(importlib.import_module(module), kind)
