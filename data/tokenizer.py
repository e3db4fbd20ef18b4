"""The Hugging Face tokenizer of a board: plain `transformers` encodes and decodes traces with it.

A `WordLevel` model over white space, whose ids are those of `solver.vocabulary`; nothing is added
when encoding. Decoding joins words with spaces and gives back the exact text of `data.text`; leave
`skip_special_tokens` off, since `<none>` and the block marks carry the meaning of a trace. A word
that is not in the vocabulary raises: there is no unknown token for it to turn into. The message
comes from the `tokenizers` library and does not name the word; `data.text.text_to_tokens` does.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from solver.boards import Board
from solver.vocabulary import END_OUTPUT, INPUT, PAD, SPECIAL_TOKENS, Vocabulary

# transformers 5 writes its new name for this class, which 4.x cannot load; both know this one.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def build_tokenizer(board: Board, *, max_tokens: int | None = None) -> PreTrainedTokenizerFast:
    """Make the tokenizer of `board`.

    Args:
        board: Board whose vocabulary it has.
        max_tokens: Longest sequence the model takes (`model_max_length`); None for no limit.

    Returns:
        A tokenizer with pad `<pad>`, bos `<input>`, eos `</output>`. It pads on the left, as
        batched generation needs.
    """
    tokens = Vocabulary(board).tokens
    backend = Tokenizer(models.WordLevel({word: token for token, word in enumerate(tokens)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # They are in the vocabulary already, so marking them special moves no id.
    backend.add_special_tokens([AddedToken(word, normalized=False) for word in SPECIAL_TOKENS])
    limit = {} if max_tokens is None else {"model_max_length": max_tokens}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=tokens[PAD],
        bos_token=tokens[INPUT],
        eos_token=tokens[END_OUTPUT],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        # Without token_type_ids, which the models do not take.
        model_input_names=["input_ids", "attention_mask"],
        **limit,
    )


def save_tokenizer(board: Board, folder: Path, *, max_tokens: int | None = None) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`, which transformers 4 and 5 both load.

    Args:
        board: Board whose tokenizer to write.
        folder: An existing folder, or one to make; other files in it are left alone.
        max_tokens: As in `build_tokenizer`.
    """
    build_tokenizer(board, max_tokens=max_tokens).save_pretrained(folder)
    config_path = folder / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = _TOKENIZER_CLASS
    config_path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
