"""A word of text for every token of a compiled machine, and the tokenizer with these words.

    <inp> 1 0 </inp>      delimiters, symbols
    [carry:1,_:LR]        run token: state entered, symbols written, movements, tape by tape
    |01|                  bits of head positions
    (1^,_)                tape cell of a summary, ^ where a head is
    {carry}               state of a summary

Words are separated by white space, so that symbols may have several characters. No two tokens share
a word: in names, white space and characters that carry meaning here are written as `%` and two hex
digits for each byte; symbols of one character always stand for themselves.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from compile_tm.constructions.compiled import Compiled
from compile_tm.constructions.tokens import (
    Answer,
    Delimiter,
    RunStep,
    State,
    Symbol,
    TapeCell,
    Token,
)

# transformers 5 writes its new name for this class, which 4.x cannot load; both know this one.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"
_RESERVED = re.compile(r"[\s%<>\[\]{}()|:,^]")


def token_text(token: Token) -> str:
    """The word of a token."""
    if isinstance(token, Symbol):
        return token.name if len(token.name) == 1 else _quote(token.name)
    if isinstance(token, RunStep):
        symbols = ",".join(map(_quote, token.symbols))
        return f"[{_quote(token.state)}:{symbols}:{''.join(token.moves)}]"
    if isinstance(token, TapeCell):
        cells = zip(token.symbols, token.has_head, strict=True)
        return f"({','.join(_quote(name) + '^' * has_head for name, has_head in cells)})"
    if isinstance(token, State):
        return f"{{{_quote(token.name)}}}"
    return str(token)


def build_tokenizer(compiled: Compiled) -> PreTrainedTokenizerFast:
    """The tokenizer of a machine, whose ids are those of its vocabulary.

    Nothing is added when encoding, and a word that is not in the vocabulary raises. It pads on the
    left, with an end token, which the attention mask hides. Leave `skip_special_tokens` off when
    decoding: delimiters carry the meaning of a sequence.
    """
    vocabulary = compiled.vocabulary
    texts = [token_text(token) for token in vocabulary.tokens(range(vocabulary.size))]
    assert len(set(texts)) == len(texts), "two tokens share a word"
    first: Token = Answer.BOS if compiled.mode == "dfa" else Delimiter.INP
    last = texts[compiled.stop_ids[0]]
    backend = Tokenizer(models.WordLevel({text: number for number, text in enumerate(texts)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=token_text(first),
        eos_token=last,
        pad_token=last,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=1 << compiled.bits,
    )


def save_tokenizer(compiled: Compiled, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    build_tokenizer(compiled).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = _TOKENIZER_CLASS
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _quote(name: str) -> str:
    return _RESERVED.sub(lambda match: "".join(f"%{b:02X}" for b in match[0].encode()), name)
