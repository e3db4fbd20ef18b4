"""Builds the step page and packs the registers for its script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import Compiled, CompiledDfa
from compile_tm.constructions.sequences import Ids, checked_run
from compile_tm.machines.interpreter import Run
from compile_tm.machines.turing import MOVES
from compile_tm.program.registers import Flag, Register
from compile_tm.runtime.trace import Activations, LayerState
from compile_tm.step_page.notes import Note, dfa_notes, turing_notes
from data.page.render import array_base64, render_page

MAX_REGISTER_TOKENS = 1024
"""Number of leading tokens of each segment with registers, of about 2 kB each."""

_STATES = ("state", "state back", "new state", "final state", "final state out")
_SYMBOLS = ("symbol", "found", "new symbol", "next symbol", "new sigma")
_MOVEMENTS = ("move", "new move")
_TAPE_NUMBER = re.compile(r" \d+$")
_NUMBER = re.compile(r"(\d+) \[")

Contents = Callable[[Register | Flag, npt.NDArray[np.floating]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model whose registers the page shows."""

    compiled: Compiled
    """The compiled machine."""
    wires: Sequence[Register | Flag]
    """Its registers and flags."""
    activations: Callable[[Ids], Activations]
    """Returns the activations on tokens (n,)."""
    contents: Contents
    """Returns the text of a register's values."""


def step_page(
    model: Model, word: str | Sequence[str], *, segment: int = 1, position: int | None = None
) -> str:
    """Return the page as HTML.

    Args:
        model: The model.
        word: Input word, as a string or as symbols.
        segment: SCoT segment shown first, from 1.
        position: Position shown first; None for the last token of the prompt.

    Raises:
        ValueError: The machine has no output on the word, or the sequence is too long.
    """
    compiled = model.compiled
    segments = compiled.expected_segments(word)
    if isinstance(compiled, CompiledDfa):
        notes, run = dfa_notes(compiled, word), None
        tape = _word_tape(compiled, word)
    else:
        run = checked_run(compiled.machine, word)
        notes = turing_notes(compiled, run, segments)
        tape = _tapes(run)
    registers = _Registers(model)
    packed = [
        registers.segment(ids, prompt_length, part)
        for (ids, prompt_length), part in zip(segments, notes, strict=True)
    ]
    title = f"{compiled.name} on {' '.join(compiled.machine.word(word)) or 'the empty word'}"
    return render_page(
        __package__ or "compile_tm.step_page",
        "page.html.j2",
        title=title,
        mode={"dfa": "automaton", "cot": "CoT", "scot": "SCoT"}[compiled.mode],
        compiled=compiled,
        run=run,
        num_segments=len(segments),
        num_tokens=sum(len(ids) for ids, _ in segments),
        steps_data={
            **tape,
            "segments": packed,
            "start": [segment - 1, segments[segment - 1][1] - 1 if position is None else position],
            "layers": registers.layer_names,
            "registers": [
                {
                    "name": wire.name,
                    "meaning": wire.meaning.replace("`", ""),
                    "symbol": wire.symbol,
                }
                for wire in model.wires
            ],
            "texts": list(registers.texts),
        },
    )


def _tapes(run: Run) -> dict[str, Any]:
    """Pack the run: its word, and state, written symbols and heads of each step."""
    machine, rows = run.machine, run.recorded_rows
    states = [machine.initial_state, *(machine.states[q] for q in machine.table.next_state[rows])]
    symbols = machine.tape_alphabet
    return {
        "word": list(run.word),
        "blank": machine.blank,
        "numCells": run.space,
        "states": states,
        "heads": run.heads.tolist(),
        "written": [[symbols[s] for s in row] for row in machine.table.write[rows].tolist()],
    }


def _word_tape(compiled: CompiledDfa, word: str | Sequence[str]) -> dict[str, Any]:
    """Pack the word of an automaton as a tape that its head reads from left to right."""
    machine = compiled.machine
    symbols, path = machine.word(word), machine.run(word)
    return {
        "word": list(symbols),
        "blank": "",
        "numCells": len(symbols),
        "states": list(path),
        "heads": [[place] for place in range(len(path))],
        "written": [[symbol] for symbol in symbols],
    }


class _Registers:
    """Packs the contents of registers as changes by token and layer, with a table of texts."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.texts: dict[str, int] = {"": 0}
        self.layer_names: list[list[str]] = []
        self._names = _value_names(model.compiled)
        self._seen: dict[tuple[Sequence[str] | bool, bytes], int] = {}

    def segment(self, ids: Ids, prompt_length: int, notes: Sequence[Note]) -> dict[str, Any]:
        """Pack a segment: tokens, notes, wrong predictions and changes of registers."""
        read = ids[: min(len(ids) - 1, MAX_REGISTER_TOKENS)]
        seen = self.model.activations(read)
        self.layer_names = [[state.number, state.name] for state in seen.layers]
        vocabulary = self.model.compiled.vocabulary
        wrong = {
            position: str(vocabulary.token(int(seen.predicted[position])))
            for position in range(prompt_length - 1, len(read))
            if seen.predicted[position] != ids[position + 1]
        }
        places = {wire.name: place for place, wire in enumerate(self.model.wires)}
        return {
            "tokens": list(map(str, vocabulary.tokens(ids))),
            "prompt": prompt_length,
            "times": [note.time for note in notes],
            "cells": [note.cell for note in notes],
            "texts": [note.text for note in notes],
            "why": [note.why for note in notes],
            "by": [[places[name] for name in note.registers] for note in notes],
            "sources": [note.sources for note in notes],
            "wrong": wrong,
            **self._changes(seen.layers, len(read)),
        }

    def _changes(self, layers: Sequence[LayerState], num_tokens: int) -> dict[str, Any]:
        """Return the changes sorted by token, register and layer, as base64.

        A register without content has the empty text; those without content after the embedding
        have no change there.
        """
        parts = []
        for place, wire in enumerate(self.model.wires):
            before: npt.NDArray[np.floating] = np.zeros((num_tokens, len(wire)))
            for layer, state in enumerate(layers):
                values = state.values[:, wire.index]
                for token in np.flatnonzero((values != before).any(axis=1)).tolist():
                    text = self._text(wire, values[token])
                    parts.append((token, place, layer, text))
                before = values
        changes = np.array(sorted(parts), dtype=np.int64).reshape(-1, 4)
        counts = np.bincount(changes[:, 0], minlength=num_tokens)
        return {
            "counts": counts.tolist(),
            "changed": array_base64(changes[:, 1], "<u2"),
            "changedLayers": array_base64(changes[:, 2], "<u2"),
            "changedTexts": array_base64(changes[:, 3], "<u4"),
        }

    def _text(self, wire: Register | Flag, values: npt.NDArray[np.floating]) -> int:
        names = self._names.get(_TAPE_NUMBER.sub("", wire.name))
        key = names or isinstance(wire, Flag), values.tobytes()
        if key not in self._seen:
            text = self.model.contents(wire, values) if values.any() else ""
            number = _NUMBER.match(text)
            if names and number and int(number[1]) < len(names):
                text = f"{names[int(number[1])]} = {text}"
            self._seen[key] = self.texts.setdefault(text, len(self.texts))
        return self._seen[key]


def _value_names(compiled: Compiled) -> dict[str, tuple[str, ...]]:
    """Names of the numbers in registers of states, symbols and movements, by register."""
    if isinstance(compiled, CompiledDfa):
        return {"symbol": compiled.machine.alphabet}
    machine = compiled.machine
    return {
        **dict.fromkeys(_STATES, machine.states),
        **dict.fromkeys(_SYMBOLS, machine.tape_alphabet),
        **dict.fromkeys(_MOVEMENTS, MOVES),
    }
