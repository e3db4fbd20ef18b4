"""Model card of a folder of the compiled architecture."""

from __future__ import annotations

import json

from compile_tm.constructions.compiled import Compiled
from compile_tm.constructions.tokens import token_text
from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM
from compile_tm.hf.self_test import SelfTestCase

MACHINE_TAGS = {
    "cot": "turing-machine, chain-of-thought",
    "scot": "turing-machine, chain-of-thought",
    "dfa": "finite-automaton",
}
"""Tags of the card of a compiled machine, by mode."""
_TEMPLATE = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [compiled-transformer, {tags}]
---
# {name}, compiled ({mode_title}, r = {bits})

A transformer that {does}.
The weights are set by a compiler; the model is not trained.

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder, or its name on the hub
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
inputs = tokenizer({prompt}, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0]))
```

`trust_remote_code=True` executes the two Python files of this folder, which only require torch and
transformers. With sudocot installed, `import compile_tm.hf` is an alternative, and `sudocot compile
check FOLDER` compiles the machine again, compares all weights, and decodes the words of
`self_test.json`.

{how}

## What is exact

{exact}

Attention is {attention}. {rounding}

## Facts

| fact | value |
|---|---|
{rows}
"""

_HOW = {
    "cot": """\
The prompt is a word between `<inp>` and `</inp>`, with symbols separated by spaces. Greedy decoding
ends with `</outp>`; the output is between `<outp>` and `</outp>`.""",
    "scot": """\
The prompt is a word between `<inp>` and `</inp>`, with symbols separated by spaces. Greedy decoding
ends a segment with `</summ>` or `</outp>`. After `</summ>`, the next prompt is the text from
`<summ>` on; after `</outp>`, the output is between `<outp>` and `</outp>`.""",
    "dfa": """\
The prompt is `<bos>` followed by a word, with symbols separated by spaces. The next token is the
answer, `<true>` or `<false>`.""",
}

_EXACT = {
    "cot": """\
For every word on which the machine halts with an output, and whose sequence has at most {room:,}
tokens, greedy decoding generates exactly the tokens of the paper's definition of CoT.""",
    "scot": """\
For every word on which the machine halts with an output, and whose segments have at most {room:,}
tokens each, greedy decoding generates exactly the segments of the paper's definition of SCoT.""",
    "dfa": "For every word of at most {longest:,} symbols, the answer is that of the automaton.",
}

_POSITIONS = {
    "embedding": "a binary positional embedding",
    "rope": "rotary embeddings, from which the first layers extract them",
}


def python_string(text: str) -> str:
    """Return a Python string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def model_card(
    compiled: Compiled, model: CompiledTransformerForCausalLM, *, case: SelfTestCase
) -> str:
    """Return the text of the card, with the prompt of a self-test case as the example."""
    sizes, config = compiled.program.sizes, model.config
    ids, prompt_length = case.segments[0]
    room = 1 << compiled.bits
    is_hardmax = config.attention == "hardmax"
    rows = {
        "machine": compiled.machine.name,
        "mode": compiled.mode,
        "r (bits of a position)": compiled.bits,
        "positions": f"{room:,}, by {_POSITIONS[config.source['positions']]}",
        "layers L": config.num_hidden_layers,
        "heads H": sizes.H,
        "d_k, d_v": f"{sizes.d_k}, {sizes.d_v}",
        "d_ff": config.intermediate_size,
        "d": sizes.d,
        "tokens": f"{sizes.vocab_size:,}",
        "parameters, including zeros": f"{sizes.num_parameters:,}",
        "nonzero weights": f"{model.num_parameters():,}",
    }
    does = "outputs whether the automaton accepts a word"
    if compiled.mode != "dfa":
        does = "runs the Turing machine step by step, as a chain of thought"
    return _TEMPLATE.format(
        tags=MACHINE_TAGS[compiled.mode],
        name=_one_line(compiled.machine.name),
        mode_title={"cot": "CoT", "scot": "SCoT", "dfa": "automaton"}[compiled.mode],
        bits=compiled.bits,
        does=does,
        prompt=python_string(
            " ".join(map(token_text, compiled.vocabulary.tokens(ids[:prompt_length])))
        ),
        how=_HOW[compiled.mode],
        exact=_EXACT[compiled.mode].format(room=room, longest=room - 1),
        attention="averaging hardmax" if is_hardmax else "softmax",
        rounding=_rounding(model),
        rows="\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items()),
    )


def _one_line(value: object) -> str:
    return " ".join(str(value).split())


def _cell(value: object) -> str:
    """Return the text of a cell of a Markdown table."""
    return _one_line(value).replace("|", "\\|")


def _rounding(model: CompiledTransformerForCausalLM) -> str:
    config = model.config
    conversion, is_rotary = config.source["conversion"], bool(config.rotary_periods)
    if conversion is None:
        text = (
            "Weights and activations are -1, 0 or 1, so that fp32, bf16 and fp16 give the same\n"
            "tokens."
        )
        if is_rotary:
            text += (
                " Rotated queries and keys are not, but their maximum dot product exceeds the\n"
                "second largest by at least 1/2."
            )
        return text
    denoised = len(conversion["denoised"])
    theorem = f"denoising in {denoised} layers" if denoised else "exact attention"
    formats = [
        f"{what} are rounded to F({bits[0]}, {bits[1]})"
        for what, bits in (
            ("activations", config.activation_format),
            ("attention weights", config.attention_format),
        )
        if bits
    ]
    text = (
        f"It replaces hardmax attention by scaling queries and keys by c = {conversion['c']:g}, "
        f"following the\npaper's theorem on {theorem}"
    )
    text += ", adapted to rotary embeddings" * is_rotary
    if formats:
        return f"{text}. Load it in float32, where {' and '.join(formats)}."
    return (
        f"{text}, for activations in bf16 or better. Attention kernels of torch also round\n"
        "intermediate results; their exactness is measured, not proven."
    )
