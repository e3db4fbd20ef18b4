"""A Hugging Face model folder, opened for evaluation: facts, shape and checked weights.

Nothing is loaded through transformers here, and nothing that could run code is read: pickled
weights are refused. Of a family that `eval.network` does not compute, only sizes are read: the
engine `hf` leaves the rest to transformers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data.model_facts import FACTS_FILE, ModelFacts, read_facts, read_json
from data.weights import weights_digest
from eval.network_config import (
    FAMILIES,
    OUTPUT_MATRIX,
    NetworkConfig,
    read_network_config,
    tensor_shapes,
)
from solver.boards import Board, get_board
from solver.vocabulary import Vocabulary

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# In memory transformers has the name that the other families have, in a file this one.
_NEOX_OUTPUT_MATRIX = "embed_out.weight"
# Constants that older versions of transformers wrote beside the weights.
_BUFFERS = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelFolder:
    """A model folder whose files were read and checked."""

    path: Path
    """The folder."""
    facts: ModelFacts
    """What the model was trained on and for."""
    config: dict[str, Any]
    """Content of `config.json`."""
    computed: NetworkConfig | None
    """Shape of the network, if its family is one that `eval.network` computes."""
    num_parameters: int
    """Weights, a tied matrix once; integers beside them are places of sparse weights."""
    weights_digest: str
    """Hex sha256 of the names, shapes, types and bytes of all weights."""

    @classmethod
    def open(cls, path: Path) -> ModelFolder:
        """Read a folder and check it, weights included.

        Raises:
            ValueError: a file is malformed, weights are missing, left over, damaged or of another
                shape, the vocabulary is smaller than the board's, or the network is of a kind that
                is not implemented.
            OSError: a file is missing.
        """
        facts = read_facts(path)
        config = read_json(path / CONFIG_FILE)
        network = None
        if config.get("model_type") in (None, *FAMILIES):
            network = read_network_config(config, source=str(path / CONFIG_FILE))
        num_ids = Vocabulary(get_board(facts.board)).size
        for name, least in (("vocab_size", num_ids), ("max_position_embeddings", 1)):
            size = config.get(name)
            if not isinstance(size, int) or size < least:
                raise ValueError(
                    f"{path / CONFIG_FILE}: {name}: got {size}, "
                    f"allowed for {facts.board} is at least {least}"
                )
        tensors = _read_tensors(path, network)
        digest = _digest(tensors, config)
        recorded = read_json(path / FACTS_FILE)["weights_digest"]
        if recorded != digest:
            logger.warning("%s: the weights are not those that %s describes", path, FACTS_FILE)
        return cls(
            path=path,
            facts=facts,
            config=config,
            computed=network,
            num_parameters=sum(
                tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()
            ),
            weights_digest=digest,
        )

    @property
    def network(self) -> NetworkConfig:
        """Shape of the network.

        Raises:
            ValueError: it is of a family that `eval.network` does not compute.
        """
        if self.computed is None:
            raise ValueError(
                f"{self.path / CONFIG_FILE}: model_type: got {self.family!r}, the engine hf alone "
                f"decodes it, the others take {', '.join(FAMILIES)}"
            )
        return self.computed

    @property
    def family(self) -> str:
        """Family of the network, as transformers names it."""
        family: str = self.config["model_type"]
        return family

    @property
    def board(self) -> Board:
        """Board whose puzzles the model solves."""
        return get_board(self.facts.board)

    @property
    def vocabulary(self) -> Vocabulary:
        """Ids that the model may write; the network may have more rows than these."""
        return Vocabulary(self.board)

    @property
    def max_positions(self) -> int:
        """Longest sequence in tokens, prompt included."""
        positions: int = self.config["max_position_embeddings"]
        return positions

    def read_weights(self) -> dict[str, Tensor]:
        """Read all weights, as fp32 on the CPU, by their names in the folder.

        Raises:
            ValueError: the files changed since `open` and are unfit now.
        """
        tensors = _read_tensors(self.path, self.computed)
        return {name: tensor.float() for name, tensor in tensors.items()}


def _read_tensors(path: Path, network: NetworkConfig | None) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file in _weight_files(path):
        try:
            tensors |= load_file(file)
        except SafetensorError as error:
            raise ValueError(f"{file}: damaged weights: {error}") from error
    tensors = {
        OUTPUT_MATRIX if name == _NEOX_OUTPUT_MATRIX else name: tensor
        for name, tensor in tensors.items()
        if not name.endswith(_BUFFERS)
    }
    if network is None:
        return tensors
    expected = tensor_shapes(network)
    if network.has_tied_embeddings:
        tensors.pop(OUTPUT_MATRIX, None)
    missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
    for kind, names in (("missing", missing), ("unknown", unknown)):
        if names:
            raise ValueError(f"{path}: {len(names)} {kind} weights, the first is {min(names)}")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            got = tuple(tensors[name].shape)
            raise ValueError(f"{path}: {name}: got shape {got}, allowed is {shape}")
        if tensors[name].dtype not in _DTYPES:
            raise ValueError(f"{path}: {name}: got {tensors[name].dtype}, allowed are {_DTYPES}")
    return tensors


def _weight_files(path: Path) -> list[Path]:
    if (path / WEIGHTS_FILE).exists():
        return [path / WEIGHTS_FILE]
    if not (path / INDEX_FILE).exists():
        raise FileNotFoundError(f"{path}: neither {WEIGHTS_FILE} nor {INDEX_FILE}")
    names = read_json(path / INDEX_FILE)["weight_map"].values()
    return [path / name for name in sorted(set(names))]


def _digest(tensors: dict[str, Tensor], config: dict[str, Any]) -> str:
    """Digest as training writes it: of a state dict, where a tied matrix has both its names."""
    if config.get("tie_word_embeddings"):
        prefix = "gpt_neox.embed_in" if config["model_type"] == "gpt_neox" else "model.embed_tokens"
        tensors = {**tensors, OUTPUT_MATRIX: tensors[f"{prefix}.weight"]}
    return weights_digest(tensors)
