"""Model card (README.md) of a model folder: usage and training facts."""

from __future__ import annotations

from pathlib import Path

from data.model_format.facts import read_facts
from data.model_format.weights import count_stored_parameters
from data.runtime.documents import read_json
from solver.boards import get_board
from solver.vocabulary import END_INPUT, INPUT, Vocabulary

_TEMPLATE = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [sudoku, reasoning, chain-of-thought]
---
# sudocot: {board} Sudoku, {mode}

A {model_type} transformer of {num_parameters:,} parameters that solves {board} Sudoku by writing
out the search of an MRV backtracking solver ({mode_text}).

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder, or its name on the hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
prompt = "{prompt}"  # all givens: cell, digit, ...
ids = tokenizer(prompt, return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids)[0]))
```

{how}

## Training

| fact | value |
|---|---|
{rows}
"""

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
    vocabulary = Vocabulary(get_board(facts.board))
    prompt = (INPUT, vocabulary.first_coordinate, vocabulary.first_digit, END_INPUT)
    mode_text, how = _MODE_TEXT[facts.mode]
    rows: dict[str, object] = {
        "trace rule": facts.trace_rule,
        "tokens of a segment": facts.segment_tokens,
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
        prompt=" ".join(vocabulary.tokens[token] for token in prompt),
        how=how,
        rows="\n".join(f"| {k} | {v} |" for k, v in rows.items() if v is not None),
    )
