"""The compiled solver as a Hugging Face model folder, which holds what a trained model's does.

    config.json  model.safetensors    entries that are not zero, by place and value
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    sudocot.json                      board, mode and rule of the traces
    README.md                         model card

The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.configuration_compiled import MATRICES
from compile_tm.hf.export import fill_matrix, no_progress_bars, staged_folder
from compile_tm.program.dense import dense_weights
from compile_tm.sudoku.board import Special
from compile_tm.sudoku.compiled import CompiledSudoku

FACTS_FILE = "sudocot.json"
TRACE_RULE = "mrv-row-major-ascending-1"


def hf_model(compiled: CompiledSudoku) -> CompiledTransformerForCausalLM:
    """The model of a board's solver, hardmax."""
    weights = dense_weights(compiled.program)
    sizes = weights.sizes
    layers = [[getattr(weights, name)[n] for name in MATRICES] for n in range(sizes.L)]
    config = CompiledTransformerConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.d,
        num_hidden_layers=sizes.L,
        num_attention_heads=sizes.H,
        key_size=sizes.d_k,
        value_size=sizes.d_v,
        intermediate_size=sizes.d_ff,
        position_coordinates=list(compiled.program.position.coordinates),
        num_entries=[[int(np.count_nonzero(matrix)) for matrix in layer] for layer in layers],
        num_embedding_entries=int(np.count_nonzero(weights.embedding)),
        num_unembedding_entries=int(np.count_nonzero(weights.unembedding)),
        source={
            "machine": f"sudoku-{compiled.board.name}",
            "mode": compiled.mode,
            "bits": compiled.bits,
            "segment_tokens": compiled.segment_tokens,
        },
        dtype="float32",
    )
    model = CompiledTransformerForCausalLM(config)
    for n, layer in enumerate(layers):
        for name, matrix in zip(MATRICES, layer, strict=True):
            fill_matrix(model.get_submodule(f"layers.{n}.{name}"), matrix)
    fill_matrix(model.embedding, weights.embedding)
    fill_matrix(model.unembedding, weights.unembedding)
    model.generation_config = GenerationConfig(
        bos_token_id=int(Special.INPUT),
        eos_token_id=[int(Special.END_OUTPUT), int(Special.END_SUMMARY)],
        pad_token_id=int(Special.PAD),
        do_sample=False,
        # The last token is not read any more, and needs no position.
        max_length=config.max_position_embeddings + 1,
    )
    torch.nn.Module.eval(model)
    return model


def export_sudoku(compiled: CompiledSudoku, folder: Path) -> CompiledTransformerForCausalLM:
    """Write the model folder.

    Raises:
        OSError: the folder exists or cannot be written.
    """
    with staged_folder(folder) as staged:
        model = hf_model(compiled)
        with no_progress_bars():
            model.save_pretrained(staged)
        _save_tokenizer(compiled, staged)
        _write_json(_facts(compiled, model), staged / FACTS_FILE)
        (staged / "README.md").write_text(_card(compiled, model), encoding="utf-8")
    return model


def _save_tokenizer(compiled: CompiledSudoku, folder: Path) -> None:
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


def _facts(
    compiled: CompiledSudoku, model: CompiledTransformerForCausalLM
) -> dict[str, str | int | dict[str, str] | None]:
    """What programs that evaluate models ask for, in their format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
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
        "training": {},
    }


def _write_json(content: object, path: Path) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _card(compiled: CompiledSudoku, model: CompiledTransformerForCausalLM) -> str:
    sizes = compiled.program.sizes
    segments = (
        f", a summary after {compiled.segment_tokens} trace tokens"
        if (compiled.segment_tokens)
        else ""
    )
    return f"""# Sudoku {compiled.board.name}, compiled

A hardmax transformer that was not trained: its weights are a program. Greedy decoding from
`<input>`, the givens and `</input>` writes the trace of the MRV backtracking solver, token for
token ({compiled.mode}{segments}).

- {sizes.L} layers, {sizes.H} heads
- d {sizes.d}, d_k {sizes.d_k}, d_v {sizes.d_v}, d_ff {sizes.d_ff}
- {model.num_parameters():,} weights are not zero
- sequences of up to {compiled.program.max_positions:,} tokens
- made by `sudocot compile sudoku --board {compiled.board.name} --mode {compiled.mode}`
"""
