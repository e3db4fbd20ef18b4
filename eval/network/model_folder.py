"""Hugging Face model folders: metadata, configuration and validated weights.

Files are read without transformers and without executing code: pickled weights are rejected. For a
family that `eval.network` does not implement, only sizes are read; the engine `hf` runs it.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data.model_format.facts import FACTS_FILE, ModelFacts, read_facts
from data.model_format.names import OUTPUT_MATRIX, canonical_name
from data.model_format.weights import weights_digest
from data.runtime.documents import read_json
from eval.network.compiled.config import (
    TRANSFORMERS_ONLY_KEYS,
    CompiledConfig,
    read_compiled_config,
)
from eval.network.compiled.weights import check_entries
from eval.network.config import (
    FAMILIES,
    NetworkConfig,
    Shapes,
    read_network_config,
    tensor_shapes,
)
from eval.network.families import COMPILED_FAMILY
from solver.boards import Board, get_board
from solver.vocabulary import Vocabulary

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Constant buffers that older versions of transformers saved with the weights.
_BUFFERS = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelFolder:
    """A model folder whose files have been validated."""

    path: Path
    """The folder."""
    facts: ModelFacts
    """Facts about the training of the model."""
    config: dict[str, Any]
    """Content of `config.json`."""
    network_config: NetworkConfig | CompiledConfig | None
    """Configuration of the network; None if only transformers supports it."""
    num_parameters: int
    """Number of floating-point weights; tied embeddings count once."""
    weights_digest: str
    """Hex SHA-256 of the names, shapes, dtypes and bytes of all weights."""

    @classmethod
    def open(cls, path: Path) -> ModelFolder:
        """Read and validate a folder, including its weights.

        Raises:
            ValueError: A file is malformed, weights are missing, unknown, damaged or have the wrong
                shape, the vocabulary is smaller than the board's, or the configuration is not
                supported.
            OSError: A file is missing.
        """
        facts = read_facts(path)
        config = read_json(path / CONFIG_FILE)
        network_config = _read_network_config(config, source=str(path / CONFIG_FILE))
        num_ids = Vocabulary(get_board(facts.board)).size
        for name, least in (("vocab_size", num_ids), ("max_position_embeddings", 1)):
            size = config.get(name)
            if not isinstance(size, int) or size < least:
                raise ValueError(
                    f"{path / CONFIG_FILE}: {name}: got {size}, "
                    f"allowed for {facts.board} is at least {least}"
                )
        tensors = _read_tensors(path, network_config)
        digest = _digest(tensors, config)
        recorded = read_json(path / FACTS_FILE)["weights_digest"]
        if recorded != digest:
            logger.warning("%s: the weights are not those that %s describes", path, FACTS_FILE)
        return cls(
            path=path,
            facts=facts,
            config=config,
            network_config=network_config,
            num_parameters=sum(
                tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()
            ),
            weights_digest=digest,
        )

    @property
    def network(self) -> NetworkConfig:
        """Configuration of a network of `FAMILIES`.

        Raises:
            ValueError: The model is of another family.
        """
        if isinstance(self.network_config, NetworkConfig):
            return self.network_config
        key, got = "model_type", self.family
        engines = "only the engine hf supports it"
        if self.family == COMPILED_FAMILY:
            for name in TRANSFORMERS_ONLY_KEYS:
                if self.config.get(name) is not None:
                    key, got = name, self.config[name]
            if self.network_config is not None:
                engines = "the engines hf, segment and verify support it"
        raise ValueError(
            f"{self.path / CONFIG_FILE}: {key}: got {got!r}, {engines}, "
            f"allowed with the others are {', '.join(FAMILIES)}"
        )

    @property
    def family(self) -> str:
        """`model_type` of transformers."""
        family: str = self.config["model_type"]
        return family

    @property
    def board(self) -> Board:
        """Board of the model."""
        return get_board(self.facts.board)

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the board; the output matrix may have more rows."""
        return Vocabulary(self.board)

    @property
    def max_positions(self) -> int:
        """Context length in tokens."""
        positions: int = self.config["max_position_embeddings"]
        return positions

    def weight_bytes(self, device: torch.device) -> int:
        """Return the memory of the weights on a device, including a bf16 copy of the matrices."""
        if isinstance(self.network_config, CompiledConfig) and device.type != "cpu":
            return 4 * sum(math.prod(shape) for shape in self.network_config.matrices.values())
        return 6 * self.num_parameters

    def read_weights(self) -> dict[str, Tensor]:
        """Read all weights as fp32 on the CPU, by name.

        Raises:
            ValueError: The files have changed since `open` and are no longer valid.
        """
        tensors = _read_tensors(self.path, self.network_config)
        return {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }


def _read_network_config(
    config: dict[str, Any], *, source: str
) -> NetworkConfig | CompiledConfig | None:
    match config.get("model_type"):
        case family if family in (None, *FAMILIES):
            return read_network_config(config, source=source)
        case family if family == COMPILED_FAMILY:
            return read_compiled_config(config, source=source)
    return None


def _read_tensors(
    path: Path, network_config: NetworkConfig | CompiledConfig | None
) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in weight_files(path):
        try:
            tensors |= load_file(file)
        except SafetensorError as error:
            raise ValueError(f"{file}: damaged weights: {error}") from error
    tensors = {
        canonical_name(name): tensor
        for name, tensor in tensors.items()
        if not name.endswith(_BUFFERS)
    }
    if isinstance(network_config, CompiledConfig):
        _check_tensors(path, tensors, network_config.tensor_shapes)
        check_entries(tensors, network_config, source=str(path))
    elif network_config is not None:
        if network_config.has_tied_embeddings:
            tensors.pop(OUTPUT_MATRIX, None)
        _check_tensors(path, tensors, tensor_shapes(network_config))
    return tensors


def _check_tensors(path: Path, tensors: dict[str, Tensor], expected: Shapes) -> None:
    missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    for kind, names in (("missing", missing), ("unknown", unknown)):
        if names:
            raise ValueError(f"{path}: {len(names)} {kind} weights, the first is {min(names)}")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            got = tuple(tensors[name].shape)
            raise ValueError(f"{path}: {name}: got shape {got}, allowed is {shape}")
        allowed = (torch.int32,) if name.endswith(".places") else _DTYPES
        if tensors[name].dtype not in allowed:
            raise ValueError(f"{path}: {name}: got {tensors[name].dtype}, allowed are {allowed}")


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files that transformers loads: one, or those of the index.

    Other files of a folder may contain the same weights in another format.

    Raises:
        ValueError: The index is damaged.
        FileNotFoundError: There is neither.
    """
    if (path / WEIGHTS_FILE).exists():
        return [path / WEIGHTS_FILE]
    if not (path / INDEX_FILE).exists():
        raise FileNotFoundError(f"{path}: neither {WEIGHTS_FILE} nor {INDEX_FILE}")
    file_of_tensor = read_json(path / INDEX_FILE).get("weight_map")
    if not isinstance(file_of_tensor, dict) or not file_of_tensor:
        raise ValueError(
            f"{path / INDEX_FILE}: weight_map: got {file_of_tensor!r:.80}, "
            "allowed is an object with the file of each tensor"
        )
    for tensor, name in file_of_tensor.items():
        # Files outside the folder are not part of the model.
        if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
            raise ValueError(
                f"{path / INDEX_FILE}: weight_map: {tensor}: got {name!r:.80}, "
                "allowed is the name of a file in the folder"
            )
    return [path / name for name in sorted(set(file_of_tensor.values()))]


def _digest(tensors: dict[str, Tensor], config: dict[str, Any]) -> str:
    """Return the digest of the state dict as saved by training, which lists tied weights twice.

    Other families than `FAMILIES` may have an embedding of another name, which is listed once.
    """
    is_neox = config["model_type"] == "gpt_neox"
    embedding = tensors.get(f"{'gpt_neox.embed_in' if is_neox else 'model.embed_tokens'}.weight")
    if config.get("tie_word_embeddings") and embedding is not None:
        tensors = {**tensors, OUTPUT_MATRIX: embedding}
    return weights_digest(tensors)
