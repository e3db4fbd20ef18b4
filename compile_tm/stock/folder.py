"""Export of a stock model folder.

    config.json  model.safetensors    a plain LlamaForCausalLM or GPTNeoXForCausalLM
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    compiled.json  machine.json       what was compiled, and how
    registers.json                    what the residual stream holds
    self_test.json                    words or puzzles with their expected tokens
    sudocot.json                      of boards: facts for evaluations
    README.md                         model card

The folder is written to a temporary place and renamed when complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig
from transformers.utils import SAFE_WEIGHTS_NAME

from compile_tm.hf.folder import (
    generation_config,
    write_evaluation_facts,
    write_json,
)
from compile_tm.hf.self_test import write_cases
from compile_tm.hf.tokenizer import save_tokenizer
from compile_tm.program.register_file import REGISTERS_FILE, registers_content
from compile_tm.stock.card import stock_card
from compile_tm.stock.llama import Tensors, llama_config, llama_tensors
from compile_tm.stock.neox import neox_config, neox_tensors
from compile_tm.stock.registers import stock_registers
from compile_tm.stock.self_test import make_cases
from compile_tm.stock.source import StockSource, write_source
from data.model_format.weights import clear_write_errors
from data.runtime.files import staged_directory


def export_stock(
    source: StockSource,
    folder: Path,
    *,
    dtype: str = "float32",
    words: Sequence[str | Sequence[str]] = (),
) -> None:
    """Write the model folder.

    Args:
        source: The compiled program and its stock model.
        folder: Folder to write, which must not exist.
        dtype: dtype of the weights. bf16 represents all weights of a Llama exactly.
        words: Words or puzzles of the self-test; empty chooses them automatically.

    Raises:
        ValueError: a word of the self-test has no output within the positions.
        OSError: the folder exists or cannot be written.
    """
    compiled = source.compiled
    cases = make_cases(compiled, words)
    with staged_directory(folder) as staged:
        tensors = {
            name: tensor.to(getattr(torch, dtype)).clone() for name, tensor in stock_tensors(source)
        }
        with clear_write_errors(folder):
            save_file(tensors, staged / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        config = stock_config(source, dtype=dtype)
        config.save_pretrained(staged)
        generation_config(compiled).save_pretrained(staged)
        save_tokenizer(compiled, staged)
        write_evaluation_facts(compiled, tensors, staged, indent=1)
        write_source(source, staged)
        registers = registers_content(stock_registers(source))
        write_json(registers, staged / REGISTERS_FILE, indent=1)
        write_cases(cases, staged)
        card = stock_card(source, cases[-1])
        (staged / "README.md").write_text(card, encoding="utf-8")


def stock_config(source: StockSource, *, dtype: str) -> PreTrainedConfig:
    """Return the config with the ids of special tokens."""
    make = llama_config if source.architecture == "llama" else neox_config
    config: PreTrainedConfig = make(source.shape, bits=source.compiled.bits, dtype=dtype)
    compiled = source.compiled
    config.bos_token_id, config.pad_token_id = compiled.first_ids[0], compiled.pad_id
    config.eos_token_id = list(compiled.stop_ids)
    return config


def stock_tensors(source: StockSource) -> Tensors:
    """Yield names and tensors of the model, fp32."""
    make = llama_tensors if source.architecture == "llama" else neox_tensors
    return make(source.program, source.shape)
