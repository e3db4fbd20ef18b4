"""Compiled machines as Hugging Face models; importing this registers them for the Auto classes.

configuration_compiled, modeling_compiled    the model, which also travels with its folder
tokenizer                                    a word of text for every token
export                                       the folder
self_test                                    words and the tokens that belong to them
folder_check                                 is the folder what it says it is?
"""

from transformers import AutoConfig, AutoModelForCausalLM

from compile_tm.hf.configuration_compiled import CompiledTransformerConfig
from compile_tm.hf.modeling_compiled import CompiledTransformerForCausalLM

AutoConfig.register(CompiledTransformerConfig.model_type, CompiledTransformerConfig, exist_ok=True)
AutoModelForCausalLM.register(
    CompiledTransformerConfig, CompiledTransformerForCausalLM, exist_ok=True
)
# The code is saved with every model.
CompiledTransformerConfig.register_for_auto_class()  # type: ignore[no-untyped-call]
CompiledTransformerForCausalLM.register_for_auto_class(  # type: ignore[no-untyped-call]
    "AutoModelForCausalLM"
)

__all__ = ["CompiledTransformerConfig", "CompiledTransformerForCausalLM"]
