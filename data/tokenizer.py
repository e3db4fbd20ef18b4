"""Hugging Face tokenizer of a board.

A `WordLevel` model over whitespace with the ids of `solver.vocabulary`. Encoding adds no special
tokens. Decoding joins words with spaces and returns the text of `data.text`; keep
`skip_special_tokens` off, since `<none>` and the block tokens are part of a trace. There is no
unknown token: a word outside the vocabulary raises an error of the `tokenizers` library, which does
not name the word, unlike `data.text.text_to_tokens`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from solver.boards import Board
from solver.vocabulary import END_OUTPUT, INPUT, PAD, SPECIAL_TOKENS, Vocabulary

# transformers 5 writes a new class name that 4.x cannot load; both accept this one.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def build_tokenizer(board: Board, *, max_tokens: int | None = None) -> PreTrainedTokenizerFast:
    """Create the tokenizer of `board`.

    Args:
        board: Board of the vocabulary.
        max_tokens: Maximum sequence length of the model (`model_max_length`); None for no limit.

    Returns:
        A tokenizer with pad `<pad>`, bos `<input>`, eos `</output>` and left padding, as required
        for batched generation.
    """
    tokens = Vocabulary(board).tokens
    backend = Tokenizer(models.WordLevel({word: token for token, word in enumerate(tokens)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # They are in the vocabulary already, so marking them as special changes no id.
    backend.add_special_tokens([AddedToken(word, normalized=False) for word in SPECIAL_TOKENS])
    limit = {} if max_tokens is None else {"model_max_length": max_tokens}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=tokens[PAD],
        bos_token=tokens[INPUT],
        eos_token=tokens[END_OUTPUT],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        # Without token_type_ids, which the models do not accept.
        model_input_names=["input_ids", "attention_mask"],
        **limit,
    )


def save_tokenizer(board: Board, folder: Path, *, max_tokens: int | None = None) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` for transformers 4 and 5.

    Args:
        board: Board of the vocabulary.
        folder: Output folder; other files in it are not changed.
        max_tokens: As in `build_tokenizer`.
    """
    build_tokenizer(board, max_tokens=max_tokens).save_pretrained(folder)
    config_path = folder / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = _TOKENIZER_CLASS
    config_path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
