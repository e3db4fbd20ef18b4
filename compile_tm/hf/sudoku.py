"""Export of Sudoku solvers to the compiled architecture.

    config.json  model.safetensors    nonzero entries of the matrices, by index and value
    generation_config.json            greedy, with the stop tokens
    tokenizer.json  tokenizer_config.json
    sudocot.json                      facts for evaluations, as in folders of trained models
    registers.json                    what the residual stream holds
    README.md                         model card

The folder is written to a temporary place and renamed when complete.
"""

from __future__ import annotations

from pathlib import Path

from compile_tm.conversion.settings import Conversion
from compile_tm.hf import CompiledTransformerForCausalLM
from compile_tm.hf.export import hf_model
from compile_tm.hf.folder import write_evaluation_facts, write_json
from compile_tm.hf.tokenizer import save_tokenizer
from compile_tm.program.register_file import REGISTERS_FILE, registers_content
from compile_tm.sudoku.compiled import CompiledSudoku
from data.model_format.weights import clear_write_errors, no_progress_bars
from data.runtime.files import staged_directory


def export_sudoku(
    compiled: CompiledSudoku,
    folder: Path,
    *,
    conversion: Conversion | None = None,
    act: str = "bf16",
) -> CompiledTransformerForCausalLM:
    """Write the model folder.

    Args:
        compiled: The compiled solver.
        folder: Folder to write, which must not exist.
        conversion: Conversion to softmax attention; None for hardmax attention.
        act: Name of the activation format for which c was chosen, for the model card.

    Raises:
        OSError: the folder exists or cannot be written.
    """
    with staged_directory(folder) as staged:
        model = hf_model(compiled, conversion)
        with no_progress_bars(), clear_write_errors(folder):
            model.save_pretrained(staged)
        save_tokenizer(compiled, staged)
        write_evaluation_facts(compiled, model.state_dict(), staged, indent=2)
        write_json(registers(compiled, conversion), staged / REGISTERS_FILE, indent=None)
        (staged / "README.md").write_text(_card(compiled, model, act), encoding="utf-8")
    return model


def registers(compiled: CompiledSudoku, conversion: Conversion | None) -> dict[str, object]:
    """Return the content of `registers.json`, with the layers of the converted model."""
    denoised = frozenset() if conversion is None else conversion.denoised

    def converted(layer: int) -> int:
        """Return the last of the one or two layers that a layer is converted to."""
        return layer + sum(other <= layer for other in denoised)

    return registers_content(
        each.moved(converted(each.first), converted(each.last)) for each in compiled.registers()
    )


def _card(compiled: CompiledSudoku, model: CompiledTransformerForCausalLM, act: str) -> str:
    config, source = model.config, model.config.source
    softmax = source["conversion"]
    kind = "hardmax" if softmax is None else "softmax"
    options = f"--board {compiled.board.name} --mode {compiled.mode} --bits {compiled.bits}"
    segments = ""
    if compiled.segment_tokens is not None:
        segments = f", with a summary after {compiled.segment_tokens} trace tokens"
        options += f" --segment-tokens {compiled.segment_tokens}"
    options += " --architecture compiled"
    lines = [
        f"{config.num_hidden_layers} layers, {config.num_attention_heads} heads",
        f"d {config.hidden_size}, d_k {config.key_size}, d_v {config.value_size}",
        f"{config.intermediate_size} hidden neurons",
        f"{model.num_parameters():,} weights are not zero",
        f"sequences of up to {compiled.program.max_positions:,} tokens",
    ]
    if softmax is not None:
        what = "denoise" if softmax["denoised"] else "exact"
        options += f" --attention {what} --act {act}"
        lines.append(f"queries and keys are multiplied by c = {softmax['c']:g}")
        lines.append(f"activations are denoised in {len(softmax['denoised'])} layers")
    facts = "\n".join(
        f"- {line}" for line in [*lines, f"made by `sudocot compile sudoku {options}`"]
    )
    return f"""# Sudoku {compiled.board.name}, compiled

A {kind} transformer. The weights are set by a compiler; the model is not trained. Greedy decoding
from `<input>`, the givens and `</input>` generates the trace of the MRV backtracking solver, token
for token ({compiled.mode}{segments}).

{facts}

`{REGISTERS_FILE}` lists the coordinates of each register, and the layers after which they are
valid; `sudocot trace PUZZLE --model FOLDER --out PAGE` shows them beside the board.
"""
