"""Conversion between token ids and text, without a tokenizer library.

Text consists of tokens separated by whitespace, as in the paper's trace figure:
`<input> (1,2) 9 ... </input> (7,3) 6 ... </output>`. Encoding accepts any whitespace, so the
indented form of `tokens_to_lines` is converted back to the same ids.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from solver.boards import Board
from solver.mrv.decision_stack import DecisionStack
from solver.vocabulary import Tokens, Vocabulary

_OPENING = ("<input>", "<summary>", "<output>")
_CLOSING = ("</input>", "</summary>", "</output>")


@functools.cache
def _id_of_word(board: Board) -> dict[str, int]:
    return {word: token for token, word in enumerate(Vocabulary(board).tokens)}


def tokens_to_text(board: Board, ids: Sequence[int] | Tokens) -> str:
    """Convert token ids to text, with one space between tokens.

    Args:
        board: Board of the vocabulary.
        ids: Token ids, shape (length,).

    Raises:
        ValueError: An id is outside the vocabulary; the message has its position.
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
    """Convert text to token ids, shape (length,), with the dtype of the board's vocabulary.

    Raises:
        ValueError: A word is not in the vocabulary; the message has the word and its position.
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
    """Format a CoT or a segment with one block or trace line per line, indented by depth.

    The depth is the number of lines on the decision stack with untried candidates, so a smaller
    indentation than that of the line above marks a backtrack.

    Args:
        board: Board of the vocabulary.
        ids: Token ids, shape (length,), possibly truncated.

    Raises:
        ValueError: As for `tokens_to_text`.
    """
    written: list[str] = []
    block: list[str] = []
    stack = DecisionStack[str]()
    depth = 0
    for phrase in _phrases(board, ids):
        head = phrase[0]
        if head in _OPENING:
            stack = DecisionStack[str]()
        elif head.startswith("("):
            stack.push(phrase)
            depth = stack.num_open - (len(phrase) > 2)
        if block or head in _OPENING:
            block += phrase
            if head in _CLOSING:
                written.append(" ".join(block))
                block = []
        else:
            written.append("  " * depth + " ".join(phrase))
    return "\n".join([*written, " ".join(block)] if block else written)


def _phrases(board: Board, ids: Sequence[int] | Tokens) -> list[list[str]]:
    """Split into block tokens, and coordinates with the tokens that follow them."""
    phrases: list[list[str]] = []
    for word in tokens_to_text(board, ids).split():
        if word in _OPENING + _CLOSING or word.startswith("(") or not phrases:
            phrases.append([])
        phrases[-1].append(word)
    return phrases
