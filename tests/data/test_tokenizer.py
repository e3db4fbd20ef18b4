"""Tests of the Hugging Face tokenizer: ids, round trips, loading without sudocot."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.text import tokens_to_text
from data.tokenizer import build_tokenizer, save_tokenizer
from solver.boards import BOARDS, Board, get_board
from solver.mrv.tracer import trace
from solver.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENIZERS = {board: build_tokenizer(board) for board in BOARDS.values()}
LOAD_ALONE = """
import sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(".")
text = sys.stdin.read()
ids = tokenizer(text).input_ids
assert tokenizer.decode(ids) == text
print(ids, tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
print(tokenizer.model_max_length, "solver" in sys.modules)
"""


@pytest.fixture(params=list(BOARDS.values()), ids=list(BOARDS))
def board(request: pytest.FixtureRequest) -> Board:
    chosen: Board = request.param
    return chosen


def test_ids_are_those_of_the_vocabulary(board: Board) -> None:
    tokens = Vocabulary(board).tokens
    tokenizer = TOKENIZERS[board]
    assert len(tokenizer) == tokenizer.vocab_size == len(tokens)
    assert tuple(tokenizer.convert_ids_to_tokens(list(range(len(tokens))))) == tokens
    assert tokenizer.get_vocab() == {word: token for token, word in enumerate(tokens)}


@given(st.sampled_from(list(BOARDS.values())), st.data())
def test_round_trip_agrees_with_the_pure_functions(board: Board, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, Vocabulary(board).size - 1)))
    text = TOKENIZERS[board].decode(ids)
    assert text == tokens_to_text(board, ids)
    assert TOKENIZERS[board](text).input_ids == ids


def test_golden_traces_round_trip(shared_dir: Path) -> None:
    board = get_board("9x9")
    records = json.loads((shared_dir / "golden" / "sudoku_traces.json").read_text())
    short = [record for record in records if record["cot_length"] <= 20_000]
    assert len(short) > 100
    for record in short:
        givens = np.array([int(c) for c in record["puzzle"].replace(".", "0")], dtype=np.uint8)
        tokens = trace(board, givens).tokens
        ids = TOKENIZERS[board](TOKENIZERS[board].decode(tokens.tolist())).input_ids
        assert hashlib.sha256(bytes(ids)).hexdigest() == record["cot_sha256"]


@pytest.mark.parametrize("word", ["hello", "(10,1)", "10", "<unk>", "(1,1)2"])
def test_unknown_word_raises_and_is_never_dropped(word: str) -> None:
    with pytest.raises(Exception, match="Missing \\[UNK\\] token"):
        TOKENIZERS[get_board("9x9")](f"(1,1) {word} 3")


def test_special_tokens_and_model_inputs(board: Board) -> None:
    tokenizer = TOKENIZERS[board]
    assert (tokenizer.pad_token, tokenizer.bos_token, tokenizer.eos_token) == (
        "<pad>",
        "<input>",
        "</output>",
    )
    batch = tokenizer(["(1,1) 1", "(1,1)"], padding=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    assert batch["input_ids"][1][0] == tokenizer.pad_token_id
    everything = tokenizer.decode(list(range(len(SPECIAL_TOKENS))), skip_special_tokens=True)
    assert everything == ""


def test_folder_loads_in_a_fresh_process_without_this_package(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    save_tokenizer(get_board("4x4"), tmp_path, max_tokens=321)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", LOAD_ALONE],
        cwd=tmp_path,
        env=environment | {"HF_HUB_OFFLINE": "1"},
        input="<input> (1,1) 4 </input>",
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "[1, 8, 27, 2] 0 1 6\n321 False\n"


def test_class_name_is_one_that_transformers_4_and_5_know(tmp_path: Path) -> None:
    save_tokenizer(get_board("4x4"), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
