"""Model card (README.md) of a model folder: usage, a sample trace, limits and training facts."""

from __future__ import annotations

from pathlib import Path

from data.model_format.facts import read_facts
from data.model_format.weights import count_stored_parameters
from data.runtime.documents import read_json
from data.text import tokens_to_lines
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle

_TEMPLATE = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [sudoku, reasoning, chain-of-thought]
---
# sudocot: {board} Sudoku, {mode}

A {model_type} transformer of {num_parameters:,} parameters, trained to solve {board} Sudoku by
writing out the search of an MRV backtracking solver ({mode_text}).

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder, or its name on the hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
prompt = "{prompt}"  # all givens: cell, digit
ids = tokenizer(prompt, return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids)[0]))
```

{how}

## Sample trace

The solver's trace of the puzzle above, which the model is trained to reproduce: each line is a cell
and its candidates; the first one is tried, and a line with several is a branch. `<none>` is a dead
end. Line breaks and indentation by depth are not part of the text.

```text
{sample}
```

## Training

| fact | value |
|---|---|
{rows}

## Accuracy and limits

The model was trained on {board} boards only, and can leave the solver's trace: `sudocot eval run`
measures its accuracy on held-out puzzles, `sudocot eval card` adds it to this card, and `sudocot
trace --model` shows the first wrong token of a puzzle.
"""

_EXAMPLES = {
    "4x4": "..........434..1",
    "6x6": ".51.........6...4.....5....23...6...",
    "9x9": "2.51....97....2.1..3..4827.89..1......1.6...2...7349....6...59.9.....3...8.....64",
    "16x16": (
        "........B.85A.6.E..582D..C..7B...28B..3.A....4FD76.9B....1..5..8FE2D.9A.C.3.4.8...B1.3..2..."
        ".67A.3.8...6.5D....2G4...B1.FA.....347.FA..E...2..D9.9D3..2C4..A.E16.8C...5....F.G...B.2...F"
        ".D9......GE7D5...B...3...1.4.7C8G...6DA.B..A....5..D874.3.....9...4..5G."
    ),
}
"""Puzzle of the sample trace, by board."""
_SAMPLE_LINES = 16

_MODE_TEXT = {
    "cot": (
        "one chain of thought",
        "Greedy decoding ends with `</output>`; the solution is between `<output>` and it.",
    ),
    "scot": (
        "summarized chain of thought, segment by segment",
        """\
Greedy decoding ends a segment with `</summary>` or `</output>`. After `</summary>`, the text from
`<summary>` on, alone, is the next prompt; after `</output>` the solution is between `<output>`
and it.""",
    ),
}


def model_card(folder: Path) -> str:
    """Render the card from the files of a model folder; unknown facts are omitted."""
    facts = read_facts(folder)
    prompt, sample = _sample(facts.board)
    mode_text, how = _MODE_TEXT[facts.mode]
    rows: dict[str, object] = {
        "trace rule": facts.trace_rule,
        "minimum trace tokens before a summary": facts.segment_tokens,
        "data digest": facts.data_digest,
    }
    if facts.precision is not None:
        formats = ", ".join(f"{k} {v}" for k, v in facts.precision.items() if k != "name")
        rows["precision"] = f"{facts.precision['name']} ({formats})"
    rows |= facts.training
    return _TEMPLATE.format(
        mode={"cot": "CoT", "scot": "SCoT"}[facts.mode],
        model_type=read_json(folder / "config.json")["model_type"],
        num_parameters=count_stored_parameters(folder),
        board=facts.board,
        mode_text=mode_text,
        prompt=prompt,
        sample=sample,
        how=how,
        rows="\n".join(f"| {k} | {_text(v)} |" for k, v in rows.items() if v is not None),
    )


def _sample(board_name: str) -> tuple[str, str]:
    """Return the input block and the first lines of the trace of the board's example."""
    board, givens = parse_puzzle(_EXAMPLES[board_name], board=get_board(board_name))
    tokens = trace(board, givens).tokens
    prompt, *lines = tokens_to_lines(board, tokens).splitlines()
    lines.pop()  # the output block
    if len(lines) > _SAMPLE_LINES:
        num_left = len(lines) - _SAMPLE_LINES
        lines[_SAMPLE_LINES:] = [f"... {num_left:,} more lines"]
    output = f"<output> ... </output>  ({len(tokens):,} tokens in total)"
    return prompt, "\n".join([*lines, output])


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
