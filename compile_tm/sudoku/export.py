"""The compiled solver as a Hugging Face model folder, which holds what a trained model's does.

    config.json  model.safetensors    entries that are not zero, by place and value
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    sudocot.json                      board, mode and rule of the traces
    registers.json                    what the registers hold, and where
    README.md                         model card

The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from compile_tm.conversion.settings import Conversion
from compile_tm.hf import CompiledTransformerForCausalLM
from compile_tm.hf.export import hf_model, no_progress_bars, staged_folder
from compile_tm.sudoku.board import Special
from compile_tm.sudoku.compiled import CompiledSudoku
from compile_tm.sudoku.meanings import REGISTERS_FILE, registers_json

FACTS_FILE = "sudocot.json"
TRACE_RULE = "mrv-row-major-ascending-1"


def export_sudoku(
    compiled: CompiledSudoku, folder: Path, *, conversion: Conversion | None = None
) -> CompiledTransformerForCausalLM:
    """Write the model folder.

    Args:
        compiled: The solver.
        folder: Where; it must not exist.
        conversion: How it becomes a softmax transformer; None leaves hardmax.

    Raises:
        OSError: the folder exists or cannot be written.
    """
    with staged_folder(folder) as staged:
        model = hf_model(compiled, conversion)
        with no_progress_bars():
            model.save_pretrained(staged)
        save_sudoku_tokenizer(compiled, staged)
        _write_json(facts(compiled, model.state_dict()), staged / FACTS_FILE)
        registers = json.dumps(registers_json(compiled, conversion))
        (staged / REGISTERS_FILE).write_text(registers + "\n", encoding="utf-8")
        (staged / "README.md").write_text(_card(compiled, model), encoding="utf-8")
    return model


def save_sudoku_tokenizer(compiled: CompiledSudoku, folder: Path) -> None:
    """Words and ids as in models that are trained; it pads on the left."""
    texts = compiled.board.texts
    backend = Tokenizer(models.WordLevel({text: number for number, text in enumerate(texts)}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(texts[token], normalized=False) for token in Special])
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=texts[Special.PAD],
        bos_token=texts[Special.INPUT],
        eos_token=texts[Special.END_OUTPUT],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=compiled.program.max_positions,
    ).save_pretrained(folder)
    # transformers 5 writes its new name for this class, which 4.x cannot load; both know this one.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    _write_json({**config, "tokenizer_class": "PreTrainedTokenizerFast"}, path)


def facts(
    compiled: CompiledSudoku, tensors: Mapping[str, Tensor]
) -> dict[str, str | int | dict[str, str] | None]:
    """What programs that evaluate models ask for, in their format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        # numpy has no bf16.
        raw = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        digest.update(raw.numpy().tobytes())
    return {
        "format": 1,
        "vocabulary_digest": hashlib.sha256("\n".join(compiled.board.texts).encode()).hexdigest(),
        "weights_digest": digest.hexdigest(),
        "board": compiled.board.name,
        "mode": compiled.mode,
        "trace_rule": TRACE_RULE,
        "segment_tokens": compiled.segment_tokens,
        "data_digest": None,
        "precision": None,
        # Evaluations list compiled models as references; nobody trained them.
        "training": {"compiled": "yes"},
    }


def _write_json(content: object, path: Path) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _card(compiled: CompiledSudoku, model: CompiledTransformerForCausalLM) -> str:
    config, source = model.config, model.config.source
    softmax = source["conversion"]
    kind = "hardmax" if softmax is None else "softmax"
    options = f"--board {compiled.board.name} --mode {compiled.mode}"
    segments = ""
    if compiled.segment_tokens is not None:
        segments = f", a summary after {compiled.segment_tokens} trace tokens"
    lines = [
        f"{config.num_hidden_layers} layers, {config.num_attention_heads} heads",
        f"d {config.hidden_size}, d_k {config.key_size}, d_v {config.value_size}",
        f"{config.intermediate_size} hidden neurons",
        f"{model.num_parameters():,} weights are not zero",
        f"sequences of up to {compiled.program.max_positions:,} tokens",
    ]
    if softmax is not None:
        what = "denoise" if softmax["denoised"] else "exact"
        options += f" --attention {what}"
        lines.append(f"queries and keys are multiplied by c = {softmax['c']:g}")
        lines.append(f"activations are denoised in {len(softmax['denoised'])} layers")
    facts = "\n".join(
        f"- {line}" for line in [*lines, f"made by `sudocot compile sudoku {options}`"]
    )
    return f"""# Sudoku {compiled.board.name}, compiled

A {kind} transformer that was not trained: its weights are a program. Greedy decoding from
`<input>`, the givens and `</input>` writes the trace of the MRV backtracking solver, token for
token ({compiled.mode}{segments}).

{facts}

`{REGISTERS_FILE}` says what its registers hold, and after which layers; `sudocot trace PUZZLE
--model FOLDER --out PAGE` shows them beside the board.
"""
