"""Tests of register values of compiled models against the state of the solver."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from data.segments import split_into_segments
from eval.commands.trace import Config
from eval.commands.trace import main as trace_command
from eval.network.model_folder import ModelFolder
from eval.network.transformers_model import load_model
from eval.trace_page.register_check import first_mismatch
from eval.trace_page.register_facts import read_register_facts
from eval.trace_page.registers import Readings, read_registers
from scripts.cli.main import main
from solver.boards import Board, get_board
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle
from solver.vocabulary import END_INPUT, NONE, OUTPUT, SUMMARY, Tokens, Vocabulary
from tests.compile_tm.sudoku_runs import searching_puzzles
from tests.eval.test_trace_page import data_of

PUZZLE = "....1..2.3.1..2."
MODELS = {"4x4 cot": ("8", None), "4x4 scot": ("8", 12), "6x6 scot": ("10", 40)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of compiled models."""
    folders = {}
    for name, (bits, segment_tokens) in MODELS.items():
        board, mode = name.split()
        folders[name] = tmp_path_factory.mktemp("models") / name.replace(" ", "-")
        options = ["--board", board, "--mode", mode, "--bits", bits, "--out", str(folders[name])]
        if segment_tokens is not None:
            options += ["--segment-tokens", str(segment_tokens)]
        assert main(["compile", "sudoku", *options]) == 0
    return folders


def read_trace(
    folder: Path, board: Board, givens: npt.NDArray[np.uint8], max_tokens: int = 4096
) -> Readings:
    """Registers at the solver's tokens."""
    model = ModelFolder.open(folder)
    registers = read_register_facts(folder, board)
    assert registers is not None
    ids = trace(board, givens).tokens
    prompt, segments = ids[: int(np.flatnonzero(ids == END_INPUT)[0]) + 1], []
    if model.facts.segment_tokens is None:
        segments = [ids[len(prompt) :]]
    else:
        parts = split_into_segments(
            board, ids, np.array([len(ids)]), segment_tokens=model.facts.segment_tokens
        )
        whole = np.split(parts.tokens, parts.ends[:-1])
        segments = [
            cast("Tokens", part[n:]) for part, n in zip(whole, parts.prompt_lengths, strict=True)
        ]
    return read_registers(
        load_model(model), registers, prompt=prompt, segments=segments, max_tokens=max_tokens
    )


def lines_that_follow(board: Board, ids: Tokens, prompt_length: int) -> list[tuple[int, list[int]]]:
    """Fresh trace lines of a segment: the token before, and the candidates that were written."""
    vocabulary = Vocabulary(board)
    found: list[tuple[int, list[int]]] = []
    is_fresh = False
    for k, token in enumerate(ids.tolist()):
        if k < prompt_length:
            continue
        if token in (SUMMARY, OUTPUT):
            break
        if token >= vocabulary.first_digit:
            if is_fresh:
                found[-1][1].append(token - vocabulary.first_digit + 1)
        elif token != NONE:
            is_fresh = NONE not in ids[max(0, k - 2) : k].tolist()
            if is_fresh:
                found.append((k - 1, []))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_registers_equal_the_state_of_the_solver(models: dict[str, Path], name: str) -> None:
    """At all tokens; and the solver's own lines are the candidates of a cell with fewest."""
    board = get_board(name.split()[0])
    num_lines = num_passes = 0
    for givens in searching_puzzles(board.name, 3, seed=5):
        readings = read_trace(models[name], board, givens)
        assert first_mismatch(board, readings, num_tokens=10**9) is None
        num_passes += len(readings.passes)
        for part in readings.passes:
            assert len(part.rows) == len(part.ids) - 1
            shape = (len(part.rows), board.num_cells, board.side)
            candidates = readings.flags(part, "candidates").reshape(shape)
            at_most = readings.flags(part, "counts").reshape(shape)
            for row, digits in lines_that_follow(board, part.ids, part.prompt_length):
                cell = int(part.ids[row + 1]) - Vocabulary(board).first_coordinate
                assert (np.flatnonzero(candidates[row, cell]) + 1).tolist() == digits
                numbers = board.side - at_most[row].sum(axis=1)
                assert numbers[cell] == len(digits) == numbers.min()
                assert cell == int(numbers.argmin())
                num_lines += 1
    assert num_lines > 40
    assert (num_passes > 3) == ("scot" in name)


Entry = dict[str, Any]


def changed(source: Path, target: Path, change: Callable[[dict[str, Entry]], object]) -> Path:
    """A copy of a model folder with other entries in `registers.json`."""
    shutil.copytree(source, target)
    path = target / "registers.json"
    content = json.loads(path.read_text())
    change({entry["name"]: entry for entry in content["registers"]})
    path.write_text(json.dumps(content))
    return target


def rotate(entry: Entry) -> None:
    entry["coordinates"] = entry["coordinates"][1:] + entry["coordinates"][:1]


@pytest.mark.parametrize("register", ["candidates", "counts", "parent", "next"])
def test_a_file_that_is_wrong_is_found_out(
    models: dict[str, Path], tmp_path: Path, register: str
) -> None:
    folder = changed(models["4x4 scot"], tmp_path / "m", lambda by_name: rotate(by_name[register]))
    board, givens = parse_puzzle(PUZZLE)
    readings = read_trace(folder, board, givens, max_tokens=40)
    mismatch = first_mismatch(board, readings, num_tokens=10**9)
    assert mismatch is not None
    assert mismatch.register == register
    assert first_mismatch(board, readings, num_tokens=mismatch.token) is None


def test_page_reports_wrong_registers(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = changed(models["4x4 scot"], tmp_path / "m", lambda by_name: rotate(by_name["counts"]))
    page = tmp_path / "page.html"
    assert trace_command(Config(puzzle=PUZZLE, model=folder, out=page)) == 0
    assert (
        "the register counts differs from the solver's state at token 3\n"
        in capsys.readouterr().out
    )
    told = "<strong>counts</strong> differs from the solver's state at <strong>token 3</strong>"
    assert told in page.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda by_name: by_name["next"].pop("kind"), "kind: missing"),
        (lambda by_name: by_name["next"].update(kind="color"), "next: kind: got 'color'"),
        (lambda by_name: by_name["next"].update(name="after"), "next: got None, allowed is"),
        (lambda by_name: by_name["possible"].update(coordinates=[3]), "got 1, allowed are 4"),
        (lambda by_name: by_name["next"].update(layers=[3, 2]), "layers: got 3 to 2"),
        (lambda by_name: by_name["next"].update(layers=[99, 99]), "layers: got 99, allowed are"),
        (lambda by_name: by_name["counts"].update(layers=[3, 13]), "counts: changes after layer 3"),
        (lambda by_name: by_name["const"].update(coordinates=[9999]), "coordinates: got 9999"),
    ],
)
def test_a_malformed_file_is_refused(
    models: dict[str, Path],
    tmp_path: Path,
    change: Callable[[dict[str, Entry]], object],
    message: str,
) -> None:
    folder = changed(models["4x4 scot"], tmp_path / "m", change)
    board, givens = get_board("4x4"), np.zeros(16, dtype=np.uint8)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_trace(folder, board, givens, max_tokens=8)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    assert read_register_facts(tmp_path, get_board("4x4")) is None
    (tmp_path / "registers.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="format: got 2, allowed is 1"):
        read_register_facts(tmp_path, get_board("4x4"))


def test_segments_whose_prompt_has_no_room_are_left_out(models: dict[str, Path]) -> None:
    board, givens = parse_puzzle(PUZZLE)

    def passes(max_tokens: int) -> list[tuple[int, int, int]]:
        found = read_trace(models["4x4 scot"], board, givens, max_tokens).passes
        return [(part.start, part.prompt_length, len(part.rows)) for part in found]

    first, second, *_ = passes(4096)
    assert first[:2] == (0, 12)
    assert second[0] == first[2] + 1 - second[1]
    assert passes(first[2] + second[1]) == [first, (*second[:2], second[1])]
    assert passes(first[2] + second[1] - 1) == [first]
    assert passes(5) == []


def test_command_shows_registers_unless_disabled(
    models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them the page has nothing of what shows them."""
    page = tmp_path / "page.html"
    config = Config(puzzle=PUZZLE, model=models["4x4 scot"], out=page)
    parts = ("register-data", "data-marks", ".cell.next", "class Registers", "with-registers")
    assert trace_command(config) == 0
    assert "the registers match the solver's state" in capsys.readouterr().out
    assert data_of(page.read_text())["difference"] is None
    assert all(part in page.read_text() for part in parts)
    assert trace_command(replace(config, max_register_tokens=0)) == 0
    bare = (
        page.read_text().replace('getElementById("register-data")', "").replace("[data-marks]", "")
    )
    assert not any(part in bare for part in parts)
    with pytest.raises(ValueError, match="max_register_tokens: got -1"):
        replace(config, max_register_tokens=-1)


def test_registers_of_softmax_models_in_emulated_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Activations are near what the file says, after the layers of the converted model."""
    folder = tmp_path / "model"
    options = ["--bits", "8", "--segment-tokens", "12", "--attention", "denoise", "--att", "bf16"]
    assert main(["compile", "sudoku", "--board", "4x4", *options, "--out", str(folder)]) == 0
    config = json.loads((folder / "config.json").read_text())
    formats = {"activation_format": [7, 8], "attention_format": [7, 8]}
    (folder / "config.json").write_text(json.dumps(config | formats))
    capsys.readouterr()
    # No engine but `hf` computes these formats, so that it is the default.
    assert trace_command(Config(puzzle=PUZZLE, model=folder, out=tmp_path / "page.html")) == 0
    printed = capsys.readouterr().out
    assert "the model follows the solver's trace" in printed
    assert "the registers match the solver's state" in printed
