"""Step page of compiled machines: explanations against the model's registers, and in Chromium."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_tm.commands import show, tm
from compile_tm.commands.folders import ExportOptions
from compile_tm.constructions.compiled import (
    Compiled,
    CompiledMachine,
    compile_dfa,
    compile_machine,
)
from compile_tm.constructions.sequences import checked_run, min_bits
from compile_tm.constructions.tokens import RunStep, Symbol, TapeCell
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.display import run_lines
from compile_tm.machines.examples import example
from compile_tm.machines.turing import TuringMachine
from compile_tm.runtime.trace import Activations, activations, trace_program
from compile_tm.step_page import build
from compile_tm.step_page.build import Model, step_page
from compile_tm.step_page.notes import turing_notes
from data.runtime.files import publish_page
from tests.eval.browser import Browser

RUNS = [
    ("binary-increment", "1011", "cot"),
    ("binary-increment", "1011", "scot"),
    ("binary-addition", "101+11", "cot"),
    ("binary-addition", "11+1", "scot"),
    ("sorting", "cba", "cot"),
    ("sorting", "cabba", "scot"),
]


def compiled_machine(name: str, word: str, mode: Any) -> Compiled:
    machine = example(name)
    if isinstance(machine, Dfa):
        return compile_dfa(machine, bits=4)
    bits = min_bits(checked_run(machine, word), mode=mode)
    return compile_machine(machine, mode=mode, bits=bits, reachable_only=True)


def model_of(compiled: Compiled) -> Model:
    return Model(
        compiled=compiled,
        wires=compiled.program.wires,
        activations=lambda ids: activations(compiled.program, ids),
        contents=show._contents,
    )


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="steps-data">(.*?)</script>', page)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize(("name", "word", "mode"), RUNS)
def test_notes_agree_with_the_model(name: str, word: str, mode: Any) -> None:
    """Positions that the notes read are those that the model's search finds."""
    compiled = compiled_machine(name, word, mode)
    assert isinstance(compiled, CompiledMachine)
    machine = compiled.machine
    segments = compiled.expected_segments(word)
    wires = {wire.name: wire for wire in compiled.program.wires}
    rules = {(rule.state, rule.read): rule for rule in machine.rules}
    num_steps = 0
    for (ids, prompt_length), notes in zip(
        segments, turing_notes(compiled, checked_run(machine, word), segments), strict=True
    ):
        assert len(notes) == len(ids)
        streams = trace_program(compiled.program, ids[:-1]).streams[-1]
        tokens = compiled.vocabulary.tokens(ids)
        for position in range(prompt_length - 1, len(ids) - 1):
            note, following = notes[position], tokens[position + 1]
            assert set(note.registers) <= set(wires)
            assert note.registers
            if not isinstance(following, RunStep):
                continue
            num_steps += 1
            read, found = [], set()
            for k in range(1, machine.num_tapes + 1):
                symbol = streams[position, wires[f"found {k}"].index]
                number = sum(1 << i for i, value in enumerate(symbol) if value > 0)
                read.append(machine.tape_alphabet[number])
                latest = streams[position, wires[f"latest {k}"].index]
                if latest.any():
                    found.add(sum(1 << i for i, value in enumerate(latest) if value > 0))
            assert set(note.sources) == found
            rule = next(r for (_, symbols), r in rules.items() if f"state {r.state}, " in note.why
                        and symbols == tuple(read))  # fmt: skip
            assert (rule.next_state, rule.write, rule.moves) == (
                following.state,
                following.symbols,
                following.moves,
            )
            assert note.why.endswith(
                f"Rule: write {', '.join(rule.write)}; move {', '.join(rule.moves)}; "
                f"enter {rule.next_state}."
            )
    assert num_steps == checked_run(machine, word).num_steps


@pytest.mark.parametrize(("name", "word", "mode"), RUNS)
def test_sources_of_output_and_summary_hold_the_next_symbol(
    name: str, word: str, mode: Any
) -> None:
    compiled = compiled_machine(name, word, mode)
    assert isinstance(compiled, CompiledMachine)
    machine = compiled.machine
    segments = compiled.expected_segments(word)
    num_checked = 0
    for (ids, prompt_length), notes in zip(
        segments, turing_notes(compiled, checked_run(machine, word), segments), strict=True
    ):
        tokens = compiled.vocabulary.tokens(ids)
        for position in range(prompt_length - 1, len(ids) - 1):
            following = tokens[position + 1]
            if isinstance(following, Symbol):
                written = {following.name}
            elif isinstance(following, TapeCell):
                written = set(following.symbols)
            else:
                continue
            num_checked += 1
            for source in notes[position].sources:
                token = tokens[source]
                held = (token.name,) if isinstance(token, Symbol) else token.symbols  # type: ignore[union-attr]
                assert set(held) & written
    assert num_checked


def test_notes_of_an_automaton() -> None:
    compiled = compiled_machine("parity", "", "cot")
    data = data_of(step_page(model_of(compiled), "1011"))
    (segment,) = data["segments"]
    assert segment["tokens"] == ["<bos>", "1", "0", "1", "1", "<false>"]
    assert segment["why"][4] == "The word ends, and odd is not accepting: the answer is <false>."
    assert segment["why"][3].endswith("If the word ended here, the answer would be <true>.")
    assert data["states"] == ["even", "odd", "odd", "even", "odd"]
    assert segment["wrong"] == {}


def test_wrong_predictions_and_tokens_without_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_machine("binary-increment", "11", "cot")
    vocabulary = compiled.vocabulary

    def wrong_at_6(ids: Any) -> Activations:
        found = activations(compiled.program, ids)
        predicted = found.predicted.copy()
        predicted[6] = 0
        return found._replace(predicted=predicted)

    model = replace(model_of(compiled), activations=wrong_at_6)
    (segment,) = data_of(step_page(model, "11"))["segments"]
    assert segment["wrong"] == {"6": str(vocabulary.token(0))}
    monkeypatch.setattr(build, "MAX_REGISTER_TOKENS", 5)
    (cut,) = data_of(step_page(model_of(compiled), "11"))["segments"]
    assert cut["counts"] == segment["counts"][:5]
    assert cut["tokens"] == segment["tokens"]


def test_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "steps.html"
    config = show.Config(machine="sorting", word="cba", mode="scot", segment=2, position=3, out=out)
    assert show.main(config) == 0
    assert capsys.readouterr().out == f"page in {out}\n"
    assert data_of(out.read_text())["start"] == [1, 3]
    assert show.main(config) == 0  # replaces its own page
    publish_page(out, "<html>\n")  # so does `sudocot trace`
    assert show.main(config) == 0
    out.write_text("mine")
    with pytest.raises(FileExistsError, match="was not made by sudocot"):
        show.main(config)
    with pytest.raises(FileExistsError, match="was not made by sudocot"):
        publish_page(out, "<html>\n")
    with pytest.raises(ValueError, match="open: allowed with --out only"):
        show.Config(machine="parity", word="1", open=True)
    with pytest.raises(ValueError, match="registers: not allowed with --out"):
        show.Config(machine="parity", word="1", out=out, registers=("state",))


@pytest.mark.parametrize("options", [ExportOptions(), ExportOptions(attention="exact")])
def test_page_of_a_folder(tmp_path: Path, options: ExportOptions) -> None:
    config = tm.Config(machine="unary-increment", bits=4, export=options, out=tmp_path / "m")
    assert tm.main(config) == 0
    out = tmp_path / "steps.html"
    assert show.main(show.Config(machine=str(tmp_path / "m"), word="1", out=out)) == 0
    data = data_of(out.read_text())
    (segment,) = data["segments"]
    assert segment["wrong"] == {}
    assert len(data["layers"]) > 10
    assert min(segment["counts"]) > 5


# ---- in Chromium ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("steps")
    found = {}
    for key, (name, word, mode) in {
        "cot": ("binary-addition", "101+11", "cot"),
        "scot": ("sorting", "cabba", "scot"),
        "dfa": ("parity", "1011", "cot"),
    }.items():
        found[key] = folder / f"{key}.html"
        page = step_page(model_of(compiled_machine(name, word, mode)), word)
        found[key].write_text(page, encoding="utf-8")
    return found


@pytest.mark.parametrize("key", ["cot", "scot", "dfa"])
@pytest.mark.parametrize(
    ("width", "is_dark"), [(375, False), (375, True), (900, False), (1280, True)]
)
def test_page_fits_its_window_without_complaints(
    browser: Browser, pages: dict[str, Path], key: str, width: int, is_dark: bool
) -> None:
    browser.open(pages[key], width=width, is_dark=is_dark)
    theme = "return document.documentElement.dataset.theme"
    assert browser.run(theme) == ("dark" if is_dark else "light")
    for name in ("End", "Home"):
        browser.press(name)
        assert browser.overflow() == 0
    # The controls cover nothing: scrolled to its end, the page shows its last legend above them.
    covered = (
        "window.scrollTo(0, document.body.scrollHeight);"
        "const bottom = (query) => document.querySelector(query).getBoundingClientRect().bottom;"
        "const top = document.querySelector('.controls').getBoundingClientRect().top;"
        "return Math.max(bottom('.register-area .legend'), bottom('#tokens')) - top"
    )
    assert browser.run(covered) <= 0
    assert browser.problems() == []


def test_tapes_are_those_of_the_interpreter(browser: Browser, pages: dict[str, Path]) -> None:
    machine = example("binary-addition")
    assert isinstance(machine, TuringMachine)
    run = checked_run(machine, "101+11")
    lines = list(run_lines(run))[:-1]
    browser.open(pages["cot"], width=1280)
    browser.press("Home")
    shown = (
        "return [document.querySelector('#state strong').textContent, "
        "...[...document.querySelectorAll('.tape')].map((tape) => "
        "[...tape.querySelectorAll('.cell')].map((cell) => cell.matches('.head') "
        "? `[${cell.firstChild.textContent}]` : ` ${cell.firstChild.textContent} `).join(''))]"
    )
    times = data_of(pages["cot"].read_text())["segments"][0]["times"]
    for time in times:
        state, *tapes = browser.run(shown)
        _, line = lines[time].lstrip().split("  ", 1)
        assert line.startswith(state)
        assert line.endswith(" | ".join(tapes))
        browser.press("ArrowRight")
    assert times[-1] == run.num_steps
    assert browser.problems() == []


def test_registers_are_those_of_the_program(browser: Browser, pages: dict[str, Path]) -> None:
    compiled = compiled_machine("binary-addition", "101+11", "cot")
    ids = compiled.expected_segments("101+11")[0][0]
    trace = trace_program(compiled.program, ids[:-1])
    browser.open(pages["cot"], width=1280)
    rows = (
        "return Object.fromEntries([...document.querySelectorAll('.register')].filter((row) => "
        "!row.hidden).map((row) => [row.querySelector('.name').textContent, "
        "row.querySelector('.value').textContent]))"
    )
    browser.press("a")
    for position in (0, 9, 16, 20, 40, len(ids) - 2):
        browser.run(f"document.querySelector('[data-position=\"{position}\"]').click()")
        for layer in (len(compiled.program.layers), 12, 0):
            browser.run(f"document.querySelector('.life').children[{layer}].click()")
            shown = browser.run(rows)
            assert set(shown) == {wire.name for wire in compiled.program.wires}
            for wire in compiled.program.wires:
                values = trace.after_layer(layer)[position, wire.index]
                text = show._contents(wire, values) if values.any() else "\u00b7"
                assert shown[wire.name].split(" = ")[-1] == text
    assert browser.problems() == []


def test_keys_links_and_segments(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["scot"], width=1280)
    at = "return [document.querySelector('#tokens').dataset.segment, slider.value]"
    compiled = compiled_machine("sorting", "cabba", "scot")
    segments = compiled.expected_segments("cabba")
    assert browser.run(at) == ["0", str(segments[0][1] - 1)]
    browser.press("End")
    assert "instead" not in browser.run("return document.body.innerText")
    assert browser.run("return why.textContent").startswith("The segment ends; the summary")
    assert "last token" in browser.run("return document.getElementById('no-registers').textContent")
    browser.press("ArrowRight", "ArrowRight")
    assert browser.run(at) == ["1", "1"]
    browser.press("ArrowLeft", "ArrowLeft")
    assert browser.run(at) == ["0", str(len(segments[0][0]) - 1)]
    browser.press("s")
    assert browser.run(at) == ["1", "0"]
    browser.press("s", with_shift=True)
    assert browser.run(at) == ["0", "0"]
    browser.run("location.hash = '#s=2&p=7'")
    browser.wait_for("slider.value === '7'")
    assert browser.run(at) == ["1", "7"]
    layer = "return document.getElementById('layer-name').textContent"
    last = browser.run(layer)
    browser.press("ArrowUp")
    assert browser.run(layer) != last
    browser.press("ArrowDown", "ArrowDown")
    assert browser.run(layer) == last
    used = "return [...document.querySelectorAll('.register')].filter((row) => !row.hidden).length"
    num_used = browser.run(used)
    browser.press("a")
    assert browser.run(used) == len(compiled.program.wires) > num_used
    browser.press("?")
    assert browser.run("return document.querySelector('details.help').open")
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert not browser.run("return document.querySelector('details.help').open")
    browser.run("document.getElementById('speed').value = '15'")
    browser.press(" ")
    browser.wait_for("document.getElementById('play').ariaLabel === 'Play'")
    assert browser.run(at) == [str(len(segments) - 1), str(len(segments[-1][0]) - 1)]
    assert browser.problems() == []


def test_registers_that_determine_the_next_token_come_first(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["cot"], width=1280)
    top = (
        "return [...document.querySelectorAll('.register')].filter((row) => !row.hidden)"
        ".toSorted((a, b) => a.offsetTop - b.offsetTop)[0].className"
    )
    assert "decides" in browser.run(top)
    sources = (
        "return [...document.querySelectorAll('.token.source')]"
        ".map((node) => node.dataset.position)"
    )
    browser.press("ArrowRight")
    data = data_of(pages["cot"].read_text())["segments"][0]
    position = int(browser.run("return slider.value"))
    assert browser.run(sources) == [str(p) for p in sorted(data["sources"][position])]
    assert np.array(data["sources"][position]).max() <= position
