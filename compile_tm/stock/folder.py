"""The folder of a stock model.

    config.json  model.safetensors    a plain LlamaForCausalLM or GPTNeoXForCausalLM
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    compiled.json  machine.json       what was compiled, and how
    registers.json                    what the residual stream holds
    self_test.json                    words or puzzles, and their tokens
    sudocot.json                      of boards: what programs that evaluate models read
    README.md                         model card

The folder appears whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import SAFE_WEIGHTS_NAME

from compile_tm.hf.export import delimiters, staged_folder
from compile_tm.hf.self_test import write_cases
from compile_tm.hf.tokenizer import save_tokenizer, token_text
from compile_tm.machines.files import write_machine
from compile_tm.stock.card import stock_card
from compile_tm.stock.llama import Tensors, llama_config, llama_tensors
from compile_tm.stock.neox import neox_config, neox_tensors
from compile_tm.stock.registers import registers_content
from compile_tm.stock.self_test import make_cases
from compile_tm.stock.source import MACHINE_FILE, StockSource, write_source
from compile_tm.sudoku.compiled import CompiledSudoku
from compile_tm.sudoku.export import FACTS_FILE, facts, save_sudoku_tokenizer
from compile_tm.sudoku.meanings import REGISTERS_FILE


def export_stock(
    source: StockSource,
    folder: Path,
    *,
    dtype: str = "float32",
    words: Sequence[str | Sequence[str]] = (),
) -> None:
    """Write the model folder.

    Args:
        source: What was compiled.
        folder: Where; it must not exist.
        dtype: Format of the weights. All weights of a Llama are numbers that bf16 holds.
        words: Words or puzzles of the self-test; by default some are chosen.

    Raises:
        ValueError: a word of the self-test is not fit.
        OSError: the folder exists or cannot be written.
    """
    compiled = source.compiled
    cases = make_cases(compiled, words)
    with staged_folder(folder) as staged:
        tensors = {
            name: tensor.to(getattr(torch, dtype)).clone() for name, tensor in stock_tensors(source)
        }
        save_file(tensors, staged / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        config = stock_config(source, dtype=dtype)
        config.save_pretrained(staged)
        generation_config(source).save_pretrained(staged)
        if isinstance(compiled, CompiledSudoku):
            save_sudoku_tokenizer(compiled, staged)
            _write_json(facts(compiled, tensors), staged / FACTS_FILE)
        else:
            save_tokenizer(compiled, staged)
            write_machine(compiled.machine, staged / MACHINE_FILE)
        write_source(source, staged)
        _write_json(registers_content(source), staged / REGISTERS_FILE)
        write_cases(cases, staged)
        card = stock_card(source, token_texts(source), cases[-1])
        (staged / "README.md").write_text(card, encoding="utf-8")


def stock_config(source: StockSource, *, dtype: str) -> PreTrainedConfig:
    """The model's config, with ids of special tokens."""
    make = llama_config if source.architecture == "llama" else neox_config
    config: PreTrainedConfig = make(source.shape, bits=source.compiled.bits, dtype=dtype)
    config.bos_token_id, config.pad_token_id = delimiters(source.compiled)
    config.eos_token_id = list(source.compiled.stop_ids)
    return config


def stock_tensors(source: StockSource) -> Tensors:
    """Yield names and tensors of the model, fp32."""
    make = llama_tensors if source.architecture == "llama" else neox_tensors
    return make(source.program, source.shape)


def generation_config(source: StockSource) -> GenerationConfig:
    """Greedy decoding to a stop token, or to the last position."""
    bos_id, pad_id = delimiters(source.compiled)
    return GenerationConfig(
        bos_token_id=bos_id,
        eos_token_id=list(source.compiled.stop_ids),
        pad_token_id=pad_id,
        do_sample=False,
        # The last token is not read any more, and needs no position.
        max_length=source.program.max_positions + 1,
    )


def token_texts(source: StockSource) -> list[str]:
    """Text of every token, as the tokenizer has it."""
    compiled = source.compiled
    if isinstance(compiled, CompiledSudoku):
        return list(compiled.board.texts)
    return [
        token_text(token) for token in compiled.vocabulary.tokens(range(compiled.vocabulary.size))
    ]


def _write_json(content: object, path: Path) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
