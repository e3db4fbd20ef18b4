"""Token ids as text and back, without any tokenizer library.

The text is the words of the vocabulary separated by white space, as in the paper's trace figure:
`<input> (1,2) 9 ... </input> (7,3) 6 ... </output>`. Writing puts one space between two words;
reading accepts any white space, so the indented form for people reads back to the same ids.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from solver.boards import Board
from solver.vocabulary import Tokens, Vocabulary

_OPENING = ("<input>", "<summary>", "<output>")
_CLOSING = ("</input>", "</summary>", "</output>")


@functools.cache
def _id_of_word(board: Board) -> dict[str, int]:
    return {word: token for token, word in enumerate(Vocabulary(board).tokens)}


def tokens_to_text(board: Board, ids: Sequence[int] | Tokens) -> str:
    """Write token ids as words with one space between them.

    Args:
        board: Board whose vocabulary the ids belong to.
        ids: Token ids, shape (length,).

    Raises:
        ValueError: an id is outside the vocabulary; the message names its position.
    """
    words = Vocabulary(board).tokens
    for position, token in enumerate(ids):
        if not 0 <= token < len(words):
            raise ValueError(
                f"token {position + 1}: got id {token}, allowed on a {board.name} board "
                f"are 0 to {len(words) - 1}"
            )
    return " ".join(words[token] for token in ids)


def text_to_tokens(board: Board, text: str) -> Tokens:
    """Read words back to token ids, shape (length,), in the board's smallest type.

    Raises:
        ValueError: a word is not in the vocabulary; the message names it and its position.
    """
    id_of_word = _id_of_word(board)
    ids: list[int] = []
    for position, word in enumerate(text.split()):
        if word not in id_of_word:
            raise ValueError(
                f"word {position + 1}: got {word!r}, which is no token of a {board.name} board "
                f"(special tokens, (1,1) to ({board.side},{board.side}), 1 to {board.side})"
            )
        ids.append(id_of_word[word])
    tokens = np.empty(len(ids), dtype=Vocabulary(board).dtype)
    tokens[:] = ids
    return tokens


def tokens_to_lines(board: Board, ids: Sequence[int] | Tokens) -> str:
    """Write a CoT or a segment for people: a block or a trace line each line, indented by depth.

    Depth is the number of cells on the decision stack that have candidates left to try; where a
    line stands further left than the one above it, the search went back.

    Args:
        board: Board whose vocabulary the ids belong to.
        ids: Token ids, shape (length,), whole or cut short.

    Raises:
        ValueError: as for `tokens_to_text`.
    """
    written: list[str] = []
    block: list[str] = []
    stack: dict[str, bool] = {}  # coordinates on the active path -> candidates left to try?
    depth = 0
    for phrase in _phrases(board, ids):
        head = phrase[0]
        if head in _OPENING:
            stack.clear()
        elif head.startswith("("):
            while head in stack:
                stack.popitem()
            depth = sum(stack.values())
            stack[head] = len(phrase) > 2
        if block or head in _OPENING:
            block += phrase
            if head in _CLOSING:
                written.append(" ".join(block))
                block = []
        else:
            written.append("  " * depth + " ".join(phrase))
    return "\n".join([*written, " ".join(block)] if block else written)


def _phrases(board: Board, ids: Sequence[int] | Tokens) -> list[list[str]]:
    """Split into block marks, and coordinates with what follows them."""
    phrases: list[list[str]] = []
    for word in tokens_to_text(board, ids).split():
        if word in _OPENING + _CLOSING or word.startswith("(") or not phrases:
            phrases.append([])
        phrases[-1].append(word)
    return phrases
