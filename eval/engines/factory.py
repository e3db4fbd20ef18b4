"""Engines by name; what an engine needs is imported when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

    from data.model_format.precision import PrecisionPolicy
    from eval.engines.contract import Engine
    from eval.network.model_folder import ModelFolder
    from eval.network.types import TokenNetwork

EngineName = Literal["hf", "segment", "verify", "vllm"]
ENGINES: tuple[str, ...] = get_args(EngineName)


def make_engine(
    name: str,
    folder: ModelFolder,
    *,
    precision: PrecisionPolicy,
    device: torch.device,
    num_slots: int,
    num_replicas: int = 1,
) -> Engine:
    """Load a model into an engine.

    Args:
        name: one of `ENGINES`.
        folder: the model.
        precision: formats to compute in.
        device: where.
        num_slots: segments in flight.
        num_replicas: copies of the model that share the puzzles; `vllm` alone makes more than one.

    Raises:
        ValueError: no such engine, or it cannot do this.
        ImportError: the engine's library is not installed.
    """
    if num_slots < 1:
        raise ValueError(f"num_slots: got {num_slots}, allowed is at least 1")
    check_replicas(name, num_replicas)
    match name:
        case "hf":
            from eval.engines.hf import HfEngine

            return HfEngine(folder, precision=precision, device=device, num_slots=num_slots)
        case "vllm":
            from eval.engines.vllm import VllmEngine

            return VllmEngine(
                folder,
                precision=precision,
                device=device,
                num_slots=num_slots,
                num_replicas=num_replicas,
            )
        case "segment" | "verify":
            from eval.engines.segment import SegmentEngine
            from eval.engines.verify import VerifyEngine

            network = make_network(folder, precision=precision, device=device)
            if name == "segment":
                return SegmentEngine(network, num_slots=num_slots)
            return VerifyEngine(
                network, num_slots=num_slots, segment_tokens=folder.facts.segment_tokens
            )
    raise ValueError(f"engine: got {name!r}, allowed are {', '.join(ENGINES)}")


def make_network(
    folder: ModelFolder, *, precision: PrecisionPolicy, device: torch.device
) -> TokenNetwork:
    """Load a model into the network that computes its family.

    Raises:
        ValueError: none does, or the folder's files changed since it was opened, and are unfit now.
    """
    from eval.network.compiled.config import CompiledConfig
    from eval.network.compiled.network import CompiledNetwork
    from eval.network.network import Network

    kind = CompiledNetwork if isinstance(folder.computed, CompiledConfig) else Network
    return kind(folder, precision=precision, device=device)


def check_replicas(name: str, num_replicas: int) -> None:
    """Refuse a number of replicas that an engine cannot make.

    Raises:
        ValueError: it cannot.
    """
    if num_replicas < 1:
        raise ValueError(f"data_parallel: got {num_replicas}, allowed is at least 1")
    if num_replicas > 1 and name != "vllm":
        raise ValueError(
            f"data_parallel: got {num_replicas}, allowed with engine {name} is 1; the engine vllm "
            "spreads puzzles over GPUs, and --shard i/n evaluates a part with any engine"
        )
