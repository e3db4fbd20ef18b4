"""Hugging Face models of the compiled architecture; importing registers them for the Auto classes.

configuration_compiled, modeling_compiled    the model; both files are saved with its folder
tokenizer                                    tokenizers of all model folders
folder                                       file names, staging, generation config
export, sudoku, card                         folders of machines and of boards
self_test                                    words with their expected tokens
source                                       compiling the program of a folder again
folder_check                                 comparison of a folder with the program
decoder                                      folders of any architecture as runtimes
"""

from transformers import AutoConfig, AutoModelForCausalLM

from compile_tm.hf.configuration_compiled import CompiledTransformerConfig
from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

AutoConfig.register(CompiledTransformerConfig.model_type, CompiledTransformerConfig, exist_ok=True)
AutoModelForCausalLM.register(
    CompiledTransformerConfig, CompiledTransformerForCausalLM, exist_ok=True
)
# Makes `save_pretrained` copy the code to the folder.
CompiledTransformerConfig.register_for_auto_class()  # type: ignore[no-untyped-call]
CompiledTransformerForCausalLM.register_for_auto_class(  # type: ignore[no-untyped-call]
    "AutoModelForCausalLM"
)

__all__ = ["CompiledTransformerConfig", "CompiledTransformerForCausalLM"]
