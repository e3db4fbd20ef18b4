"""Tests of the `compile` commands: output and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import pytest

from compile_tm.commands import check, dfa, estimate, report, run, show, sudoku, tm
from compile_tm.commands.folders import ExportOptions
from compile_tm.commands.machines import load_machine
from compile_tm.constructions.compiled import compile_dfa
from compile_tm.constructions.sizes import tm_sizes
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.settings import Conversion
from compile_tm.hf.export import export_model
from compile_tm.hf.self_test import read_cases
from compile_tm.machines.examples import parity, sorting
from compile_tm.machines.regex import regex_dfa, regex_symbols
from compile_tm.machines.turing import TuringMachine
from compile_tm.runtime.generation import Generation
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku
from scripts.cli.main import main as command_line
from solver.jit import IS_JIT
from tests.compile_tm.machine_cases import write_machine


def test_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    assert estimate.main(estimate.Config(machine="binary-addition", bits=12, json=True)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["L"], facts["H"], facts["d_k"], facts["d"]) == (38, 9, 47, 381)
    assert estimate.main(estimate.Config(machine="sorting", mode="scot", word="cba")) == 0
    assert "hidden neurons per layer" in capsys.readouterr().out
    config = estimate.Config(machine="busy-beaver-3", two_way=True, word="", json=True)
    assert estimate.main(config) == 0
    assert json.loads(capsys.readouterr().out)["L"] == 5 * 6 // 2 + 8
    for word, bits in (("", 1), ("1", 1), ("11", 2), ("1111", 3)):
        assert estimate.main(estimate.Config(machine="parity", word=word, json=True)) == 0
        assert json.loads(capsys.readouterr().out)["L"] == bits + 2
    for machine, bits, message in (
        ("sorting", 4, "needs at least 8"),
        ("sorting", 5, "allowed for cot are even"),
        ("parity", 1, "allowed for this word is at least 2"),
    ):
        word = "cabba" if machine == "sorting" else "111"
        with pytest.raises(ValueError, match=message):
            estimate.main(estimate.Config(machine=machine, word=word, bits=bits))
    with pytest.raises(ValueError, match="bits: missing"):
        estimate.Config(machine="sorting")


def test_estimates_of_solvers(capsys: pytest.CaptureFixture[str]) -> None:
    small = {"machine": "sudoku-4x4", "mode": "scot", "bits": 8, "json": True}
    config = estimate.Config(**small, segment_tokens=16)  # type: ignore[arg-type]
    assert estimate.main(config) == 0
    facts = json.loads(capsys.readouterr().out)
    sizes = compile_sudoku(BOARDS["4x4"], mode="scot", bits=8, segment_tokens=16).program.sizes
    assert (facts["L"], facts["H"], facts["d"]) == (sizes.L, sizes.H, sizes.d)
    with pytest.raises(ValueError, match="segment_tokens: got 512, allowed are 1 to 255"):
        estimate.main(estimate.Config(**small))  # type: ignore[arg-type]
    for changes, message in (
        ({"word": ""}, "word: got , not allowed with a Sudoku solver"),
        ({"two_way": True}, "two_way: got True, not allowed with a Sudoku solver"),
        ({"reachable_only": True}, "reachable_only: got True, not allowed with a Sudoku solver"),
        ({"mode": "cot", "segment_tokens": 16}, "segment_tokens: got 16, allowed with a Sudoku"),
        ({"machine": "sorting", "segment_tokens": 16}, "segment_tokens: got 16, allowed with a"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate.Config(**small | changes)  # type: ignore[arg-type]


def test_run_tokens_are_counted_without_an_array() -> None:
    machine = TuringMachine(
        states=("start", "halt"),
        input_alphabet=("0", "1"),
        tape_alphabet=("0", "1", "_"),
        blank="_",
        initial_state="start",
        halting_state="halt",
        rules=(),
        num_tapes=20,
    )
    assert tm_sizes(machine, mode="scot", bits=4).vocab_size > 9**20


def test_words_are_split_before_two_way_tapes_are_folded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Symbols of the folded tape have several characters."""
    machine, word, folder = "busy-beaver-4", "11", tmp_path / "m"
    config = run.Config(machine=machine, word=word, two_way=True, tokens=True)
    assert run.main(config) == 0
    assert "<inp> 1 1 </inp> " in capsys.readouterr().out
    shown = show.Config(machine=machine, word=word, two_way=True, out=tmp_path / "steps.html")
    assert show.main(shown) == 0
    assert estimate.main(estimate.Config(machine=machine, word=word, two_way=True)) == 0
    written = tm.Config(machine=machine, bits=8, words=(word,), two_way=True, out=folder)
    assert tm.main(written) == 0
    assert read_cases(folder)[0].word == ("1", "1")


def test_two_way_is_refused_for_automata() -> None:
    message = "two_way: allowed with Turing machines, parity is an automaton"
    with pytest.raises(ValueError, match=message):
        run.main(run.Config(machine="parity", word="1", two_way=True))
    with pytest.raises(ValueError, match=message):
        estimate.main(estimate.Config(machine="parity", word="1", two_way=True))


def test_segment_tokens_are_refused_without_segments() -> None:
    with pytest.raises(ValueError, match="segment_tokens: got 16, allowed with mode scot"):
        sudoku.Config(mode="cot", segment_tokens=16)


def test_a_report_does_not_replace_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is checked before anything is computed."""
    (tmp_path / "mine").touch()
    monkeypatch.setattr("compile_tm.measure.report.sections.instantiation_section", None)
    with pytest.raises(FileExistsError, match="contains files but no report"):
        report.main(report.Config(out=tmp_path))


@pytest.mark.parametrize("runtime", ["sparse", "dense"])
def test_runs(capsys: pytest.CaptureFixture[str], runtime: Literal["sparse", "dense"]) -> None:
    if runtime == "sparse" and not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")
    config = run.Config(
        machine="sorting",
        word="cab",
        mode="scot",
        runtime=runtime,
        tokens=True,
        steps=True,
    )
    assert run.main(config) == 0
    out = capsys.readouterr().out
    assert "output    a b c\n" in out
    assert "<inp> c a b </inp> [seen c c R]" in out
    assert "halted after" in out


def test_a_transformer_that_differs_from_its_machine_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "generate_words", lambda *_: [Generation((), None)])
    config = run.Config(machine="sorting", word="ba", runtime="dense")
    assert run.main(config) == 1


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    config = show.Config(machine="binary-increment", word="11", position=5, registers=("sought",))
    assert show.main(config) == 0
    out = capsys.readouterr().out
    assert "position 5: [right 1 R], followed by [carry _ L]" in out
    assert "2 [010000]" in out
    assert "found" not in out
    config = show.Config(machine="sorting", word="cba", position=3, mode="scot", segment=2)
    assert show.main(config) == 0
    for changes, message in (({"segment": 9}, "segment: got 9"), ({"position": 99}, "got 99")):
        wrong = {"machine": "sorting", "word": "cba", "position": 1, "mode": "scot"} | changes
        with pytest.raises(ValueError, match=message):
            show.main(show.Config(**wrong))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="registers: got sought, allowed with --position"):
        show.Config(machine="sorting", word="cba", registers=("sought",))


def test_machines_by_name_or_file(tmp_path: Path) -> None:
    write_machine(sorting(), tmp_path / "m.yaml")
    assert load_machine(str(tmp_path / "m.yaml")) == load_machine("sorting")
    write_machine(parity(), tmp_path / "p.json")
    with pytest.raises(ValueError, match="is an automaton; see compile dfa"):
        tm.main(tm.Config(machine=str(tmp_path / "p.json"), bits=4, out=tmp_path / "m"))
    with pytest.raises(ValueError, match=r"machine: got 'sort', allowed are files .* sorting"):
        load_machine("sort")


@pytest.mark.parametrize("architecture", ["compiled", "llama", None])
def test_export_and_check(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    architecture: Literal["compiled", "llama"] | None,
) -> None:
    folder = tmp_path / "m"
    options = ExportOptions(architecture=architecture)
    config = tm.Config(
        machine="binary-increment", bits=6, words=("11",), export=options, out=folder
    )
    assert tm.main(config) == 0
    assert " nonzero\n" in capsys.readouterr().out
    assert check.main(check.Config(folder=folder, margins=True)) == 0
    out = capsys.readouterr().out
    assert "machine   binary increment, cot, r = 6\n" in out
    assert "margin    1 in layer " in out
    assert out.endswith("verdict   as compiled\n")
    # The machine is another one: one rule differs.
    path = folder / "machine.json"
    data = json.loads(path.read_text())
    data["transitions"][0][3] = ["1" if data["transitions"][0][3] == ["0"] else "0"]
    path.write_text(json.dumps(data))
    assert check.main(check.Config(folder=folder)) == 1
    out = capsys.readouterr().out
    assert (
        "wrong     layer " if architecture == "compiled" else "wrong     config, vocab_size: is 22"
    ) in out
    assert "[right:b:R]" in out or architecture == "compiled"
    assert out.endswith("verdict   wrong\n")
    with pytest.raises(ValueError, match="is not a folder"):
        check.main(check.Config(folder=tmp_path / "none"))


def test_export_of_automata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for export in (ExportOptions(attention="exact"), ExportOptions(attention="denoise")):
        folder = tmp_path / str(export.attention)
        config = dfa.Config(regex="(a|b)*a", bits=3, export=export, out=folder)
        assert dfa.main(config) == 0
        assert "softmax   c " in capsys.readouterr().out
        assert check.main(check.Config(folder=folder)) == 0
        assert "regex (a|b)*a, dfa, r = 3" in capsys.readouterr().out
    assert dfa.main(dfa.Config(machine="parity", bits=2, out=tmp_path / "p")) == 0
    assert "model     llama: " in capsys.readouterr().out
    assert run.main(run.Config(machine=str(tmp_path / "p"), word="10")) == 0
    shown = show.Config(machine=str(tmp_path / "p"), word="101", position=3)
    assert show.main(shown) == 0
    assert "3 [11]" in capsys.readouterr().out
    for options, message in (
        (
            {"architecture": "llama", "attention": "exact"},
            "attention: got exact, allowed with arch",
        ),
        ({"architecture": "gpt-neox", "positions": "rope"}, "positions: got rope, allowed with"),
        ({"attention": "exact", "dtype": "bfloat16"}, "dtype: got bfloat16, allowed with"),
    ):
        with pytest.raises(ValueError, match=message):
            ExportOptions(**options)  # type: ignore[arg-type]
    for changes, message in (
        ({"machine": "parity", "regex": "a"}, "either a machine or --regex"),
        ({}, "either a machine or --regex"),
        ({"machine": "parity", "alphabet": "ab"}, "with --regex only"),
    ):
        with pytest.raises(ValueError, match=message):
            dfa.Config(bits=2, out=tmp_path / "q", **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a Turing machine"):
        dfa.main(dfa.Config(machine="sorting", bits=2, out=tmp_path / "q"))


def test_folders_without_positional_embeddings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compile, check, run and show, in formats below the bound that do all the same."""
    folder = tmp_path / "m"
    config = dfa.Config(
        machine="parity",
        bits=3,
        export=ExportOptions(positions="rope", attention="denoise", act="m2e4", att="bf16"),
        words=("1011",),
        out=folder,
    )
    assert dfa.main(config) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "unproven  condition of the proof: activations have at least 5 mantissa bits\n"
    )
    assert check.main(check.Config(folder=folder)) == 0
    assert re.search(
        r"^model     positions by rope, softmax with c \d+, 7 layers denoised, "
        r"activations in m2e4, attention in bf16$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert run.main(run.Config(machine=str(folder), word="1011", tokens=True, steps=True)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["even odd odd even odd", "<bos> 1 0 1 1 <false>", "output    <false>"]
    shown = show.Config(machine=str(folder), word="1011", position=4, registers=("position",))
    assert show.main(shown) == 0
    out = capsys.readouterr().out
    assert "position 4: 1, followed by <false>" in out
    assert "4 [001]" in out
    assert "embedding" not in out
    with pytest.raises(ValueError, match="bits: got 3, not allowed with a model folder"):
        run.Config(machine=str(folder), word="1", bits=3)
    with pytest.raises(ValueError, match="mode: got cot, not allowed with a model folder"):
        show.Config(machine=str(folder), word="1", position=1, mode="cot")


def test_a_folder_shows_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Softmax without denoising, of a c that is below the bound."""
    compiled = compile_dfa(parity(), bits=2)
    export_model(compiled, tmp_path / "m", conversion=Conversion(c=2.0), words=["11"])
    assert show.main(show.Config(machine=str(tmp_path / "m"), word="111", position=3)) == 0
    assert re.search(r"0\.972 -0\.972 . answer", capsys.readouterr().out)


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_folders_of_machines_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: Mode
) -> None:
    options = ExportOptions(positions="rope")
    config = tm.Config(
        machine="unary-increment", mode=mode, bits=4, export=options, out=tmp_path / "m"
    )
    assert tm.main(config) == 0
    assert run.main(run.Config(machine=str(tmp_path / "m"), word="1")) == 0
    assert "output    1 1\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="act, att: got a format, allowed with attention"):
        ExportOptions(act="bf16")
    with pytest.raises(ValueError, match="mantissa_bits: got 0"):
        ExportOptions(attention="exact", act="m0e3")


@pytest.mark.parametrize("runtime", ["sparse", "dense"])
def test_runs_and_shows_automata(
    capsys: pytest.CaptureFixture[str], runtime: Literal["sparse", "dense"]
) -> None:
    if runtime == "sparse" and not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")
    config = run.Config(machine="parity", word="1011", runtime=runtime, tokens=True, steps=True)
    assert run.main(config) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["even odd odd even odd", "<bos> 1 0 1 1 <false>", "output    <false>"]
    assert lines[-1] == "machine   the same"
    with pytest.raises(ValueError, match="word: got 4 symbols, allowed are 3"):
        run.main(run.Config(machine="parity", word="1011", bits=2))
    assert show.main(show.Config(machine="parity", word="1011", position=4)) == 0
    out = capsys.readouterr().out
    assert "position 4: 1, followed by <false>" in out
    assert "answer" in out


def test_symbols_of_an_expression() -> None:
    assert regex_symbols(r"(a|b)*\*c?.") == ("*", "a", "b", "c")


ONE_STATE = (
    "kind: dfa\nstates: [a]\nalphabet: [x]\ninitial_state: a\naccepting: [{}]\n"
    "transitions: [[a, x, a]]\n"
)


@pytest.mark.parametrize("accepting", ["", "a"])
@pytest.mark.parametrize(
    "options",
    [
        ("--architecture", "llama"),
        ("--architecture", "gpt-neox"),
        ("--architecture", "compiled"),
        ("--architecture", "compiled", "--positions", "rope"),
    ],
)
def test_automata_with_one_state_and_one_symbol(
    options: tuple[str, ...],
    accepting: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their states and symbols have no bits."""
    machine, out = tmp_path / "one.yaml", str(tmp_path / "out")
    machine.write_text(ONE_STATE.format(accepting))
    export = ["compile", "dfa", str(machine), "--bits", "3", "--out", out]
    assert command_line([*export, *options]) == 0
    assert command_line(["compile", "check", out]) == 0
    for model in (out, str(machine)):
        capsys.readouterr()
        assert command_line(["compile", "run", model, "xxx"]) == 0
        assert ("<true>" if accepting else "<false>") in capsys.readouterr().out


@pytest.mark.parametrize("expression", ["[ab]*", "a{2}", "^a", "a$", r"\d+"])
def test_regular_expressions_with_other_syntax_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="is not supported"):
        regex_dfa(expression, alphabet=tuple("ab[]{}2^$d"))


def test_unknown_registers_and_too_few_bits_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", "show", "binary-increment", "11", "--position", "5", "--registers", "soght"]
    assert command_line(words) == 2
    assert "registers: got soght, allowed are prefixes of " in capsys.readouterr().err
    out = str(tmp_path / "out")
    assert command_line(["compile", "tm", "binary-increment", "--bits", "2", "--out", out]) == 2
    assert "bits: got 2, but cot of this run" in capsys.readouterr().err


def test_long_outputs_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["compile", "run", "two-tape-copy", "01" * 30]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("output ") and len(line) > 80 for line in lines) == 1
