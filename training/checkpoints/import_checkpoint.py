"""Conversion of checkpoints of the paper's authors to model folders.

The checkpoints are GPT-NeoX folders of transformers (`config.json`, `pytorch_model.bin`) with the
same 98 token ids, but without tokenizer, stop tokens for segments and facts about the data.
Pickled weights are read with `weights_only`, so a checkpoint cannot execute code.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedConfig

from data.model_format.facts import Mode, ModelFacts
from data.model_format.weights import clear_read_errors
from data.runtime.documents import read_json
from solver.boards import get_board
from solver.mrv.tracer import TRACE_RULE
from solver.vocabulary import Vocabulary
from training.checkpoints.export import export_model, read_pretrained
from training.models.build import transformers_config
from training.models.families import ModelConfig
from training.models.rotary import check_rotary

logger = logging.getLogger(__name__)

_BOARD = "9x9"
# Set by this project, or without effect on the logits.
_IGNORED_FIELDS = {
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "classifier_dropout",
    "dtype",
    "eos_token_id",
    "hidden_dropout",
    "initializer_range",
    "pad_token_id",
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "transformers_version",
    "use_cache",
}


def import_checkpoint(
    source: Path, target: Path, *, mode: Mode, segment_tokens: int
) -> ModelConfig:
    """Convert the checkpoint folder `source` into the model folder `target`.

    Args:
        source: Folder with `config.json` and the weights.
        target: Folder to write; it must not exist.
        mode: Mode that the model was trained for, which the checkpoint does not state.
        segment_tokens: Minimum trace tokens before a summary (SCoT).

    Returns:
        The config of the model.

    Raises:
        ValueError: Not a GPT-NeoX model over the 98 ids, or an architecture that differs from the
            paper's; the message names the field.
        OSError: A file is missing, or `target` cannot be written.
    """
    config_path = source / "config.json"
    stored = read_json(config_path)
    if stored.get("model_type") != "gpt_neox":
        raise ValueError(
            f"{config_path}: model_type: got {stored.get('model_type')!r}, allowed is 'gpt_neox'"
        )
    num_ids = Vocabulary(get_board(_BOARD)).size
    if stored.get("vocab_size") != num_ids:
        raise ValueError(
            f"{config_path}: vocab_size: got {stored.get('vocab_size')}, allowed is {num_ids}"
        )
    with clear_read_errors(config_path):
        read: Any = GPTNeoXConfig.from_pretrained(source)
    config = ModelConfig(
        board=_BOARD,
        family="gpt_neox",
        hidden_size=read.hidden_size,
        num_layers=read.num_hidden_layers,
        num_heads=read.num_attention_heads,
        intermediate_size=read.intermediate_size,
        rope_theta=read.rope_parameters["rope_theta"],
        max_positions=read.max_position_embeddings,
    )
    if stored.get("rope_theta", config.rope_theta) != config.rope_theta:
        logger.warning(
            "%s: GPT-NeoX ignores rope_theta %g; the model keeps the base %g that it was trained "
            "with",
            config_path,
            stored["rope_theta"],
            config.rope_theta,
        )
    expected = transformers_config(config)
    _check_same_network(read, expected, path=config_path)
    model = read_pretrained(GPTNeoXForCausalLM, source, config=expected)
    check_rotary(model, rope_theta=config.rope_theta, rotary_dims=config.head_size)
    facts = ModelFacts(
        board=_BOARD,
        mode=mode,
        trace_rule=TRACE_RULE,
        segment_tokens=segment_tokens if mode == "scot" else None,
        data_digest=None,
        precision=None,
        training={"imported from": source.name},
    )
    export_model(model, target, facts=facts)
    return config


def _check_same_network(read: PreTrainedConfig, expected: PreTrainedConfig, *, path: Path) -> None:
    got, allowed = read.to_dict(), expected.to_dict()
    # transformers 4.57 also writes the share of rotated dimensions under its newer name.
    share = got.pop("partial_rotary_factor", None)
    if share not in (None, read.rope_parameters["partial_rotary_factor"]):
        raise ValueError(f"{path}: partial_rotary_factor: got {share!r}, allowed is 1.0")
    for name in sorted((got.keys() | allowed.keys()) - _IGNORED_FIELDS):
        if got.get(name) != allowed.get(name):
            raise ValueError(
                f"{path}: {name}: got {got.get(name)!r}, allowed is {allowed.get(name)!r}"
            )
