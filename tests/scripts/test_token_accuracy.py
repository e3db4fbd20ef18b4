"""Tests of the accuracy by kind of token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from data.store import TokenStore
from scripts.cli.main import main as sudocot
from scripts.models.ship import read_model
from scripts.models.token_accuracy import KINDS, Config, main, measure, token_kinds
from solver.boards import Board
from solver.vocabulary import Tokens, Vocabulary
from tests.scripts.test_models import export_run

CELL = ("cell of a dead end", "cell with one candidate", "cell of a branch")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenStore]:
    """Data sets of 4x4 puzzles whose traces have dead ends."""
    folder = tmp_path_factory.mktemp("data")
    puzzles = str(folder / "puzzles.csv")
    words = ["data", "generate", "20", "--board", "4x4", "--givens", "3", "6"]
    words += ["--min-cot-length", "80"]
    assert sudocot([*words, "--out", puzzles]) == 0
    for mode in ("cot", "scot"):
        words = ["data", "build", puzzles, "--board", "4x4", "--no-check-unique", "--mode", mode]
        assert sudocot([*words, "--segment-tokens", "16", "--out", str(folder / mode)]) == 0
    return {mode: TokenStore.open(folder / mode) for mode in ("cot", "scot")}


def kinds_of_words(board: Board, tokens: Tokens) -> list[str]:
    """Return the kinds, read from the text word by word."""
    words = [Vocabulary(board).tokens[token] for token in tokens]
    kinds = []
    for i, word in enumerate(words):
        if "<summary>" in words[: i + 1] or "<output>" in words[: i + 1]:
            kinds.append("summary and output")
        elif not word.startswith("("):
            kinds.append("candidates of the cell")
        elif words[i + 1] == "<none>":
            kinds.append(CELL[0])
        else:
            kinds.append(CELL[1] if words[i + 2][0] in "(<" else CELL[2])
    return kinds


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_kinds_are_those_of_the_text(mode: str, stores: dict[str, TokenStore]) -> None:
    store, found = stores[mode], set()
    for row in range(len(store)):
        tokens = store[row][int(store.prompt_lengths[row]) :]
        kinds = [KINDS[kind] for kind in token_kinds(store.board, tokens)]
        assert kinds == kinds_of_words(store.board, tokens)
        found.update(kinds)
    assert found == set(KINDS)


def test_sums_are_those_of_single_rows(stores: dict[str, TokenStore], tmp_path: Path) -> None:
    model, store = read_model(export_run(tmp_path / "model")), stores["cot"]
    together = measure(model, store, rows=range(20), batch_size=8)
    for kind, row in enumerate(together):
        parts = [measure(model, store, rows=[n], batch_size=1)[kind] for n in range(20)]
        assert row.num_tokens == sum(part.num_tokens for part in parts) > 0
        assert row.num_correct == sum(part.num_correct for part in parts)
        assert row.loss_sum == pytest.approx(sum(part.loss_sum for part in parts), rel=1e-4)
    tokens, prompt_length = store[0].astype(np.int64), int(store.prompt_lengths[0])
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    first = measure(model, store, rows=[0], batch_size=1)
    right = logits.argmax(-1).numpy()[prompt_length - 1 : -1] == tokens[prompt_length:]
    assert sum(row.num_correct for row in first) == right.sum()
    assert sum(row.num_tokens for row in first) == len(right)


def test_table_and_wrong_data(
    stores: dict[str, TokenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = export_run(tmp_path / "model")
    assert main(Config(model=model, data=stores["cot"].folder, count=20)) == 0
    printed = capsys.readouterr().out
    assert all(kind in printed for kind in KINDS)
    with pytest.raises(ValueError, match="got 4x4 scot, the model has 4x4 cot"):
        main(Config(model=model, data=stores["scot"].folder))
