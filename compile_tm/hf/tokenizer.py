"""Tokenizers of model folders: one word for each token, split at whitespace."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from compile_tm.program.compiled import CompiledProgram

# transformers 5 writes a class name that 4.x cannot load; both load this one.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def build_tokenizer(compiled: CompiledProgram) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a compiled program, with the ids of its vocabulary.

    It adds no tokens, pads on the left, and raises on a word that is not in the vocabulary. Decode
    with `skip_special_tokens=False`: delimiters carry the meaning of a sequence.
    """
    texts = compiled.token_texts
    assert len(set(texts)) == len(texts), "two tokens share a text"
    backend = Tokenizer(models.WordLevel({text: number for number, text in enumerate(texts)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(
        [AddedToken(texts[token], normalized=False) for token in compiled.special_ids]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=texts[compiled.first_ids[0]],
        eos_token=texts[compiled.stop_ids[0]],
        pad_token=texts[compiled.pad_id],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=compiled.program.max_positions,
    )


def save_tokenizer(compiled: CompiledProgram, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    build_tokenizer(compiled).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = _TOKENIZER_CLASS
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
