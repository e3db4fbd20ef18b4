"""Tests of the command `compile sudoku`, and conversions of compiled solvers."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from compile_tm.commands.folders import Attention, make_conversion
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import RoundingPoints
from compile_tm.formats.floats import BF16, get_format
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.runtime.transformer import TorchTransformer
from compile_tm.stock.self_test import expected_case
from compile_tm.sudoku.board import BOARDS, Special
from compile_tm.sudoku.compiled import compile_sudoku
from scripts.cli.main import main
from solver.boards import get_board
from tests.compile_tm.sudoku_runs import (
    Ids,
    compiled_with_model,
    jit_only,
    searching_puzzles,
    solver_segments,
)


@jit_only
def test_command_solves_and_writes_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is one that the rest of the project reads, and generates the solver's tokens."""
    import torch

    from compile_tm.commands import sudoku
    from compile_tm.hf import CompiledTransformerForCausalLM
    from compile_tm.hf.decoder import open_decoder
    from compile_tm.hf.folder_check import check_folder
    from data.tokenizer import build_tokenizer
    from eval.network.model_folder import ModelFolder

    puzzle, folder = "1" + "." * 15, tmp_path / "model"
    config = sudoku.Config(
        board="4x4",
        mode="scot",
        segment_tokens=16,
        bits=8,
        architecture="compiled",
        puzzle=puzzle,
        out=folder,
    )
    assert sudoku.main(config) == 0
    printed = capsys.readouterr().out
    assert "solution  1234341221434321\n" in printed
    assert "segments  3\n" in printed
    for run_folder in (open_decoder, check_folder):
        with pytest.raises(ValueError, match=r"model: has no machine\.json; Sudoku solvers of the"):
            run_folder(folder)
    facts = ModelFolder.open(folder).facts
    assert (facts.board, facts.mode, facts.segment_tokens) == ("4x4", "scot", 16)
    model = CompiledTransformerForCausalLM.from_pretrained(folder)
    givens = np.array([1] + [0] * 15, dtype=np.uint8)
    for ids, prompt_length in solver_segments("4x4", givens, 16):
        prompt = torch.from_numpy(ids[None, :prompt_length].astype(np.int64))
        generated = model.generate(prompt, attention_mask=torch.ones_like(prompt))  # type: ignore[misc]
        assert generated[0].tolist() == ids.tolist()
    theirs = build_tokenizer(get_board("4x4"), max_tokens=256)
    saved = json.loads((folder / "tokenizer.json").read_text())
    assert saved == json.loads(theirs.backend_tokenizer.to_str())
    with pytest.raises(FileExistsError):
        sudoku.main(config)
    unsolvable = dataclasses.replace(config, out=None, puzzle="123.4..........4")
    assert sudoku.main(unsolvable) == 1


@pytest.mark.parametrize(
    ("puzzle", "reason"),
    [
        ("\u00b2" + "." * 15, "got '\u00b2' in cell 1, allowed are 1 to 4, and . or 0 for blanks"),
        ("." * 15 + "5", "got '5' in cell 16, allowed are 1 to 4, and . or 0 for blanks"),
        ("." * 15, "got 15 cells, allowed are 16"),
        ("11" + "." * 14, "(1,1) and (1,2) conflict, both hold 1"),
    ],
)
def test_malformed_puzzles_are_refused_before_the_folder_is_written(
    tmp_path: Path, puzzle: str, reason: str
) -> None:
    from compile_tm.commands import sudoku

    config = sudoku.Config(board="4x4", bits=8, puzzle=puzzle, out=tmp_path / "model")
    with pytest.raises(ValueError, match=re.escape(reason)):
        sudoku.main(config)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("mode", ["cot", "scot"])
@pytest.mark.parametrize("attention", [None, "exact", "denoise"])
def test_the_cards_command_writes_the_folder_again(
    tmp_path: Path, mode: Mode, attention: Attention | None
) -> None:
    from compile_tm.commands import sudoku

    config = sudoku.Config(
        board="4x4",
        mode=mode,
        bits=7,
        segment_tokens=12 if mode == "scot" else None,
        architecture="compiled",
        attention=attention,
        act="bf16" if attention is None else "fp16",
        out=tmp_path / "model",
    )
    sudoku.main(config)
    (command,) = re.findall(
        r"made by `sudocot (compile sudoku .*)`", (tmp_path / "model" / "README.md").read_text()
    )
    assert main([*command.split(), "--out", str(tmp_path / "again")]) == 0
    for name in ("config.json", "model.safetensors", "README.md"):
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("model", "again"))
        assert first == second


@jit_only
def test_solvers_print_tokens_and_refuse_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from compile_tm.commands import run
    from compile_tm.hf import decoder

    compiled, model = compiled_with_model("4x4", "scot", 8, 16)
    opened = SimpleNamespace(compiled=compiled, generate=model.generate)
    monkeypatch.setattr(decoder, "open_decoder", lambda _: opened)
    config = run.Config(machine=str(tmp_path), word="1" + "." * 15, tokens=True)
    assert run.main(config) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("<input> (1,1) 1 </input> ")
    assert [line.split()[-1] for line in lines[:3]] == ["</summary>", "</summary>", "</output>"]
    assert lines[3] == "solution  1234341221434321"
    with pytest.raises(ValueError, match="steps: not allowed with a Sudoku solver"):
        run.main(dataclasses.replace(config, steps=True))


def generate_wrongly(
    model: SparseTransformer, kind: Literal["grid", "repeated summary", "no end"]
) -> Callable[..., list[Ids]]:
    """A decoder whose second segment is wrong."""
    num_calls = 0

    def generate(prompts: Sequence[Ids], *, stop: Collection[int]) -> list[Ids]:
        nonlocal num_calls
        num_calls += 1
        assert num_calls <= 2, "it is decoded beyond the first difference"
        (ids,) = model.generate(prompts, stop=stop)
        if num_calls == 2:
            prompt = np.asarray(prompts[0], dtype=np.int32)
            wrong: dict[str, npt.ArrayLike] = {
                "grid": [Special.OUTPUT, *[8, 24] * 16, Special.END_OUTPUT],
                "repeated summary": prompt,
                "no end": np.full(257 - len(prompt), 8),
            }
            ids = np.append(prompt, wrong[kind]).astype(np.int32)
        return [ids]

    return generate


@jit_only
@pytest.mark.parametrize("kind", ["grid", "repeated summary", "no end"])
def test_a_model_that_differs_from_its_solver_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: Literal["grid", "repeated summary", "no end"],
) -> None:
    from compile_tm.commands import run
    from compile_tm.hf import decoder

    compiled, model = compiled_with_model("4x4", "scot", 8, 16)
    config = run.Config(machine=str(tmp_path), word="1" + "." * 15)
    for generate, code, verdict in (
        (model.generate, 0, "the same"),
        (generate_wrongly(model, kind), 1, "differs"),
    ):
        opened = SimpleNamespace(compiled=compiled, generate=generate)
        monkeypatch.setattr(decoder, "open_decoder", lambda _, opened=opened: opened)
        assert run.main(config) == code
        assert capsys.readouterr().out.endswith(f"machine   {verdict}\n")


@jit_only
def test_too_few_bits_are_named() -> None:
    from compile_tm.commands import sudoku

    few, all_given = "1" + "." * 15, "1234341221434321"
    for options, needed in (
        ({"mode": "cot", "bits": 6, "puzzle": few}, 7),
        ({"mode": "scot", "segment_tokens": 16, "bits": 6, "puzzle": few}, 7),
        ({"mode": "cot", "bits": 5, "puzzle": all_given}, 7),
    ):
        config = sudoku.Config(board="4x4", **options)  # type: ignore[arg-type]
        bits = options["bits"]
        with pytest.raises(
            ValueError, match=f"bits: got {bits}, this puzzle needs at least {needed}"
        ):
            sudoku.main(config)


@pytest.mark.parametrize("mode", ["cot", "scot"])
@pytest.mark.parametrize("bits", [12, 16, 20])
def test_the_smallest_board_can_have_many_positions(mode: Mode, bits: int) -> None:
    """Its comparisons of positions need more neurons than its candidates."""
    compiled = compile_sudoku(BOARDS["4x4"], mode=mode, bits=bits, segment_tokens=16)
    assert compiled.program.max_positions == 1 << bits


@jit_only
def test_puzzles_longer_than_a_self_test_can_be_probed(tmp_path: Path) -> None:
    from compile_tm.commands import probe

    compiled, _ = compiled_with_model("6x6", "scot", 8, 16)
    puzzle = "000000003200000000004000300000010400"
    config = probe.Config(folder=tmp_path, out=tmp_path / "out.npz", words=(puzzle,))
    sequences = probe._sequences(config, SimpleNamespace(compiled=compiled))  # type: ignore[arg-type]
    assert sum(map(len, sequences)) > 4000
    with pytest.raises(ValueError, match="puzzle: got more than 4,000 tokens, the limit of a self"):
        expected_case(compiled, puzzle)


def test_options_that_have_no_effect_are_refused() -> None:
    from compile_tm.commands import sudoku

    for options, message in (
        ({"architecture": "compiled", "dtype": "bfloat16"}, "dtype: got bfloat16, allowed with"),
        ({"attention": "exact", "dtype": "bfloat16"}, "dtype: got bfloat16, allowed with"),
        ({"act": "fp16"}, "act, att: got a format, allowed with attention exact or denoise"),
        ({"att": "bf16"}, "act, att: got a format, allowed with attention exact or denoise"),
        ({"attention": "exact", "act": "m0e3"}, "mantissa_bits: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            sudoku.Config(**options)  # type: ignore[arg-type]
    sudoku.Config(dtype="bfloat16")


def test_lengths_out_of_range_are_refused() -> None:
    for bits, segment_tokens, message in (
        (4, 8, "bits: got 4, must be at least 5"),
        (8, 256, "allowed are 1 to 255"),
        (13, 8191, "allowed are numbers with at most 12 binary ones, one layer for each"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_sudoku(BOARDS["4x4"], mode="scot", bits=bits, segment_tokens=segment_tokens)


@jit_only
@pytest.mark.parametrize(
    ("attention", "att", "depth"), [("exact", None, 13), ("denoise", "bf16", 24)]
)
def test_softmax_with_rounding_writes_the_same(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    attention: Attention,
    att: str | None,
    depth: int,
) -> None:
    """Both conversions in bf16, with the theorems' c: decoded, and as a folder."""
    import torch

    from compile_tm.commands import sudoku
    from compile_tm.hf import CompiledTransformerForCausalLM

    puzzle, folder = "1" + "." * 15, tmp_path / "model"
    config = sudoku.Config(
        board="4x4",
        segment_tokens=16,
        bits=8,
        attention=attention,
        att=att,
        puzzle=puzzle,
        out=folder,
    )
    assert sudoku.main(config) == 0
    assert "solution  1234341221434321\n" in capsys.readouterr().out
    compiled, _ = compiled_with_model("4x4", "scot", 8, 16)
    points = RoundingPoints(activations=BF16, attention=get_format(att) if att else None)
    conversion = make_conversion(Blueprint(program=compiled.program), attention, points=points)
    assert conversion is not None
    emulated = TorchTransformer(compiled.program, conversion, points=points)
    exported = CompiledTransformerForCausalLM.from_pretrained(folder)
    assert exported.config.num_hidden_layers == depth
    for givens in searching_puzzles("4x4", 2, seed=9):
        for ids, n in solver_segments("4x4", givens, 16):
            assert emulated.predict(ids[:-1])[n - 1 :].tolist() == ids[n:].tolist()
            logits = exported(torch.from_numpy(ids[None, :-1].astype(np.int64))).logits
            assert logits[0, n - 1 :].argmax(dim=-1).tolist() == ids[n:].tolist()
