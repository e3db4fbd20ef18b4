"""Accuracy of a model by kind of token: `python -m scripts.models.token_accuracy --help`.

Every token of a data set is predicted after the solver's tokens before it (teacher forcing). The
choice of a cell is a minimum over all cells of the board, and its candidates depend on the peers of
one cell only, so models learn the two at different times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
import tyro
from annotated_types import Ge
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import PreTrainedModel

from data.model_format.facts import read_facts
from data.store import TokenStore
from scripts.models.ship import read_model
from solver.boards import Board
from solver.mrv.trace_lines import trace_lines
from solver.vocabulary import Tokens

KINDS = (
    "cell of a dead end",
    "cell with one candidate",
    "cell of a branch",
    "candidates of the cell",
    "summary and output",
)
"""Kinds of tokens, by number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Measure the accuracy of a model by kind of token, with teacher forcing."""

    model: Path
    """Model folder."""
    data: Path
    """Data set folder of held-out puzzles, in the mode of the model."""
    count: Annotated[int, Ge(1)] = 300
    """Maximum number of segments (CoT: traces), the first of the data set."""
    batch_size: Annotated[int, Ge(1)] = 8
    """Segments per forward pass."""


@dataclass(kw_only=True, slots=True)
class TokenAccuracy:
    """Predictions of the tokens of one kind."""

    num_tokens: int = 0
    """Tokens."""
    num_correct: int = 0
    """Tokens with the greatest logit at their position."""
    loss_sum: float = 0.0
    """Sum of the cross-entropies, in nats."""


def main(config: Config) -> int:
    """Print a table with a row per kind of token.

    Raises:
        ValueError: The data has another board or mode than the model.
        OSError: A folder cannot be read.
    """
    facts, store = read_facts(config.model), TokenStore.open(config.data)
    ours, theirs = (store.manifest.board, store.manifest.mode), (facts.board, facts.mode)
    if ours != theirs:
        raise ValueError(f"{config.data}: got {' '.join(ours)}, the model has {' '.join(theirs)}")
    model = read_model(config.model)
    rows = range(min(config.count, len(store)))
    measured = measure(model, store, rows=rows, batch_size=config.batch_size)
    table = Table(title=f"{config.model}, {len(rows)} segments of {config.data}")
    table.add_column("token")
    for title in ("tokens", "correct, %", "loss, nats"):
        table.add_column(title, justify="right")
    for kind, row in zip(KINDS, measured, strict=True):
        if row.num_tokens:
            share, loss = row.num_correct / row.num_tokens, row.loss_sum / row.num_tokens
            table.add_row(kind, f"{row.num_tokens:,}", f"{100 * share:.2f}", f"{loss:.4f}")
    Console(markup=False).print(table)
    return 0


def measure(
    model: PreTrainedModel, store: TokenStore, *, rows: Sequence[int], batch_size: int
) -> list[TokenAccuracy]:
    """Predict all tokens after the prompts of some rows of a data set; one result per kind."""
    measured = [TokenAccuracy() for _ in KINDS]
    for kinds, is_correct, losses in _predictions(model, store, rows, batch_size):
        for kind, row in enumerate(measured):
            row.num_tokens += int((kinds == kind).sum())
            row.num_correct += int(is_correct[kinds == kind].sum())
            row.loss_sum += float(losses[kinds == kind].sum())
    return measured


@torch.no_grad()
def _predictions(
    model: PreTrainedModel, store: TokenStore, rows: Sequence[int], batch_size: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.float32]]]:
    """Yield kinds, whether the tokens are predicted, and cross-entropies, of each row, (n,)."""
    model.eval()
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        texts = [torch.from_numpy(store[row].astype(np.int64)) for row in batch]
        # Padding at the end has no influence on the tokens before it.
        ids: Tensor = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
        logits = model(ids).logits.float()
        for row, text, scores in zip(batch, texts, logits, strict=True):
            prompt_length = int(store.prompt_lengths[row])
            targets, scores = text[prompt_length:], scores[prompt_length - 1 : len(text) - 1]
            losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
            kinds = token_kinds(store.board, text.numpy()[prompt_length:])
            yield kinds, (scores.argmax(-1) == targets).numpy(), losses.numpy()


def token_kinds(board: Board, tokens: Tokens) -> npt.NDArray[np.int64]:
    """Return the kind of each token after the prompt of a segment, an index of `KINDS`.

    Args:
        board: The board.
        tokens: Ids of the trace lines, and of the summary or output that ends the segment, (n,).
    """
    lines = trace_lines(board, tokens)
    kinds = np.full(len(tokens), KINDS.index("candidates of the cell"))
    kinds[lines.starts] = np.minimum(lines.num_candidates, 2)
    kinds[lines.end :] = KINDS.index("summary and output")
    return kinds


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
