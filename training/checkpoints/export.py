"""Export of a trained model to a Hugging Face model folder, and loading of its weights.

    config.json  model.safetensors    loaded by `AutoModelForCausalLM` without code of this project
    generation_config.json            greedy; stops after `</output>` and after `</summary>`
    tokenizer.json  tokenizer_config.json
    README.md                         model card: use, training facts, data digest, precision
    sudocot.json                      `ModelFacts`: the same in machine-readable form

The folder is published atomically.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from data.model_format.facts import FACTS_FILE, FACTS_FORMAT, ModelFacts, read_facts
from data.model_format.weights import (
    clear_read_errors,
    clear_write_errors,
    no_progress_bars,
    stored_types,
    weights_digest,
)
from data.runtime.documents import read_json
from data.runtime.files import staged_directory, to_json
from data.tokenizer import save_tokenizer
from solver.boards import Board, get_board
from solver.vocabulary import INPUT, PAD, STOP_TOKENS, Vocabulary
from training.checkpoints.model_card import model_card
from training.checkpoints.transfer import transferred_state
from training.checkpoints.widen import is_narrower, widened_state
from training.models.build import check_master_weights
from training.models.rotary import effective_rope_base, is_same_base, pin_rotary

logger = logging.getLogger(__name__)


def export_model(
    model: PreTrainedModel,
    folder: Path,
    *,
    facts: ModelFacts,
    state_dict: dict[str, Tensor] | None = None,
) -> None:
    """Write the model folder.

    Args:
        model: Unwrapped model.
        folder: Folder to write; it must not exist.
        facts: Facts for the model card.
        state_dict: Weights to write; None for those of the model.

    Raises:
        ValueError: The model's vocabulary is not that of the board.
        OSError: The folder exists or cannot be written.
    """
    vocabulary = Vocabulary(get_board(facts.board))
    if model.config.vocab_size != vocabulary.size:
        raise ValueError(
            f"vocab_size: got {model.config.vocab_size}, a {facts.board} model has "
            f"{vocabulary.size}"
        )
    generation = GenerationConfig(
        bos_token_id=INPUT,
        eos_token_id=list(STOP_TOKENS),
        pad_token_id=PAD,
        do_sample=False,
        max_length=model.config.max_position_embeddings,
    )
    record = {
        "format": FACTS_FORMAT,
        "vocabulary_digest": vocabulary.digest,
        "weights_digest": weights_digest(model if state_dict is None else state_dict),
        **asdict(facts),
    }
    with staged_directory(folder) as staged:
        with no_progress_bars(), clear_write_errors(folder):
            model.save_pretrained(staged, state_dict=state_dict)
        _add_old_rope_names(staged / "config.json")
        generation.save_pretrained(staged)
        save_tokenizer(vocabulary.board, staged, max_tokens=model.config.max_position_embeddings)
        (staged / FACTS_FILE).write_bytes(to_json(record))
        (staged / "README.md").write_text(model_card(staged), encoding="utf-8")


def _add_old_rope_names(path: Path) -> None:
    """Add the rotary settings under the names that older versions of transformers read.

    Those versions ignore or overwrite `rope_parameters` and silently use their defaults: before
    5.5, GPT-NeoX rotates a quarter of each head; 4.x uses base 10000 for every model.
    """
    config = read_json(path)
    rope = config["rope_parameters"]
    if config["model_type"] == "gpt_neox":
        config["rotary_emb_base"] = rope["rope_theta"]
        config["rotary_pct"] = rope["partial_rotary_factor"]
    else:
        config["rope_theta"] = rope["rope_theta"]
    path.write_bytes(to_json(config))


def load_weights(model: PreTrainedModel, folder: Path, *, board: Board, seed: int = 0) -> None:
    """Load the weights of an exported folder into `model`, converted to fp32.

    The embeddings of a model of another board are transferred, see `transfer_rows`; a narrower
    model is widened, see `widened_state`.

    Args:
        model: Model of `board`, with its random initial weights.
        folder: Model folder of the same architecture, or a narrower one.
        board: Board of the run.
        seed: Seed of the embeddings of tokens that the folder's model does not have.

    Raises:
        ValueError: The folder has a model of another architecture or rotary base.
    """
    source_vocabulary = Vocabulary(get_board(read_facts(folder).board))
    vocabulary = Vocabulary(board)
    source = read_pretrained(type(model), folder)
    if _stored_digest(source, folder) != read_json(folder / FACTS_FILE)["weights_digest"]:
        logger.warning("%s: the weights are not those that %s describes", folder, FACTS_FILE)
    ours, theirs = effective_rope_base(model), effective_rope_base(source)
    if not is_same_base(ours, theirs):
        raise ValueError(f"{folder}: got rotary base {theirs:g}, the run has {ours:g}")
    state = source.state_dict()
    if source_vocabulary != vocabulary:
        logger.info("%s: embeddings transferred to %s", folder, board.name)
        state = transferred_state(
            source, source_vocabulary=source_vocabulary, vocabulary=vocabulary, seed=seed
        )
    try:
        if is_narrower(source.config, model.config):
            state = widened_state(state, model=model)
            logger.info("%s: a narrower model, widened to the architecture of the run", folder)
        model.load_state_dict(state)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{folder}: not the architecture of this run: {error}") from error
    check_master_weights(model)


def _stored_digest(source: PreTrainedModel, folder: Path) -> str:
    """Return the digest of the weights converted back to the dtypes they were stored in."""
    types = stored_types(folder)
    state = source.state_dict()
    return weights_digest({name: state[name].to(types.get(name, source.dtype)) for name in state})


def read_pretrained(
    model_class: type[PreTrainedModel], folder: Path, *, config: PreTrainedConfig | None = None
) -> PreTrainedModel:
    """Load a local model folder in fp32 with rotary frequencies pinned; strict about its weights.

    Args:
        model_class: Class of the model.
        folder: Folder with the weights; pickled ones are read with `weights_only`.
        config: Config to use instead of the folder's.

    Raises:
        ValueError: Weights are missing, unexpected, of another shape, damaged, or contain code.
    """
    load: Any = model_class.from_pretrained
    model: PreTrainedModel
    with no_progress_bars(), clear_read_errors(folder):
        model, report = load(
            folder,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
    problems = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    if problems:
        raise ValueError(f"{folder}: weights do not match the config: {problems}")
    pin_rotary(model)
    return model
