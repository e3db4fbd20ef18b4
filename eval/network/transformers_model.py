"""Models of any family that transformers supports."""

from __future__ import annotations

from inspect import signature
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GenerationConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from data.model_format.vector_math import initialize_vector_math
from data.model_format.weights import clear_read_errors, no_progress_bars
from eval.network.families import register_family
from eval.network.model_folder import ModelFolder
from solver.vocabulary import Tokens

CACHE_ARGUMENT = (
    "cache" if "cache" in signature(LlamaForCausalLM.forward).parameters else "past_key_values"
)
"""Name of the KV cache argument of models, which is `cache` since transformers 5.24."""


class TransformersSequence:
    """A `TokenSequence` in fp32 on the CPU."""

    def __init__(self, folder: ModelFolder) -> None:
        """Load the model."""
        self.num_ids, self.max_positions = folder.vocabulary.size, folder.max_positions
        self._model = cast("Any", load_model(folder))
        self._cache = DynamicCache()

    def begin(self, prompt: Tokens) -> Tensor:
        """See `TokenSequence`."""
        self._cache = DynamicCache()
        return self._append(torch.from_numpy(prompt.astype(np.int64)))

    def append(self, token: int) -> Tensor:
        """See `TokenSequence`."""
        return self._append(torch.tensor([token]))

    @torch.inference_mode()
    def _append(self, ids: Tensor) -> Tensor:
        output = self._model(ids[None], use_cache=True, **{CACHE_ARGUMENT: self._cache})
        logits: Tensor = output.logits[0, -1:, : self.num_ids]
        return logits


def load_model(folder: ModelFolder) -> PreTrainedModel:
    """Load a model folder in fp32 on the CPU.

    Raises:
        ValueError: transformers does not support the family, or the folder is malformed.
    """
    initialize_vector_math()
    register_family(folder.family)
    load: Any = AutoModelForCausalLM.from_pretrained
    model: PreTrainedModel
    with no_progress_bars(), clear_read_errors(folder.path):
        model = load(folder.path, dtype=torch.float32, local_files_only=True)
    # The generation config of the folder, such as its maximum length, would override ours.
    model.generation_config = GenerationConfig()
    nn.Module.eval(model)
    return model
