"""Model card of a stock folder."""

from __future__ import annotations

from compile_tm.hf.card import MACHINE_TAGS, python_string
from compile_tm.hf.self_test import SelfTestCase
from compile_tm.stock.attention import attention_error_exponent
from compile_tm.stock.norms import layer_norm_delta, rms_delta
from compile_tm.stock.source import StockSource

_TEMPLATE = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [compiled-transformer, {tags}]
---
# {name}, compiled to {model_class} ({mode}, r = {bits})

A transformer that {does}. The weights are set by a compiler; the model is not trained. It is a
standard `{model_class}`, which loads without `trust_remote_code` in all software that supports this
architecture.

## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # this folder, or its name on the hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
inputs = tokenizer({prompt}, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0]))
```

`vllm serve FOLDER --dtype bfloat16` (or `float32`) starts a server; on a CPU, add
`--kv-cache-memory-bytes 1G`, since vLLM reserves 92% of the memory by default and exits if less is
free. `sudocot compile check FOLDER` compiles the model again, compares all weights, and runs the
sequences of `self_test.json`.

{how}

## What is exact

In float32 and bfloat16, greedy decoding generates exactly the tokens of the definition, for
sequences of at most {room:,} tokens ({positions}). {norms}
Positions without the maximum score get less than 2^-{attention_error} of the
attention. Hidden neurons with integer input are exactly their ReLU.

`registers.json` lists the coordinates of the residual stream for each register, and the layers
after which they are valid.

## Facts

| fact | value |
|---|---|
{rows}
"""

_HOW = {
    "cot": """\
The prompt ends with `{einp}`. Greedy decoding ends with `{eoutp}`; the output is between
`{outp}` and `{eoutp}`.""",
    "scot": """\
The prompt ends with `{einp}`. Greedy decoding ends a segment with `{esumm}` or `{eoutp}`. After
`{esumm}`, the next prompt is the text from `{summ}` on; after `{eoutp}`, the output is between
`{outp}` and `{eoutp}`.""",
    "dfa": """\
The prompt is `<bos>` followed by a word, with symbols separated by spaces. The next token is the
answer, `<true>` or `<false>`.""",
}
_MARKS = {
    True: ("</input>", "<output>", "</output>", "<summary>", "</summary>"),
    False: ("</inp>", "<outp>", "</outp>", "<summ>", "</summ>"),
}


def stock_card(source: StockSource, case: SelfTestCase) -> str:
    """Return the text of the card, with the prompt of a self-test case as the example."""
    compiled, shape, program = source.compiled, source.shape, source.program
    texts, is_sudoku = compiled.token_texts, compiled.family == "sudoku"
    is_llama = source.architecture == "llama"
    ids, prompt_length = case.segments[0]
    bound = (rms_delta if is_llama else layer_norm_delta)(
        shape.hidden_size, program.num_coordinates
    )
    does = "runs the Turing machine step by step, as a chain of thought"
    if compiled.mode == "dfa":
        does = "outputs whether the automaton accepts a word"
    if is_sudoku:
        does = "writes the trace of a backtracking Sudoku solver, and the solution"
    rows = {
        "layers": f"{shape.num_layers}, {program.num_position_layers} of them extract positions",
        "width": f"{shape.hidden_size:,}, {program.num_coordinates:,} coordinates in use",
        "heads": f"{shape.num_heads} of {shape.head_size}",
        "feed-forward width": f"{shape.feed_forward_size:,}",
        "tokens": f"{shape.vocab_size:,}",
        "parameters": f"{shape.num_parameters:,}",
        "nonzero weights": f"{shape.num_nonzero:,}",
    }
    einp, outp, eoutp, summ, esumm = _MARKS[is_sudoku]
    return _TEMPLATE.format(
        tags="sudoku, chain-of-thought" if is_sudoku else MACHINE_TAGS[compiled.mode],
        name=source.name,
        model_class="LlamaForCausalLM" if is_llama else "GPTNeoXForCausalLM",
        mode={"cot": "CoT", "scot": "SCoT", "dfa": "automaton"}[compiled.mode],
        bits=compiled.bits,
        does=does,
        prompt=python_string(" ".join(texts[token] for token in ids[:prompt_length])),
        how=_HOW[compiled.mode].format(einp=einp, outp=outp, eoutp=eoutp, summ=summ, esumm=esumm),
        room=program.max_positions,
        positions="positions come from rotary embeddings",
        norms=f"Norms multiply by 1 - delta with delta at most {bound:.2g}.",
        attention_error=attention_error_exponent(program.position_bits),
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
    )
