"""Inference of Llama, Qwen3, GPT-NeoX and compiled transformers."""
