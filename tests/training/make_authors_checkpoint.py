"""Make `authors_checkpoint/` with the version of transformers that the paper used.

    python -m venv OLD && OLD/bin/pip install transformers==4.57.6 torch safetensors
    OLD/bin/python tests/training/make_authors_checkpoint.py tests/training/authors_checkpoint

It has the form of the authors' checkpoints and random weights of a tiny GPT-NeoX;
`logits.safetensors` holds what that version of transformers computes for the ids 0 to 97.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def main(folder: Path) -> None:
    """Write config.json, model.safetensors and logits.safetensors."""
    assert transformers.__version__.startswith("4.57."), transformers.__version__
    torch.manual_seed(0)
    names: dict[str, Any] = {"rope_theta": 10000.0, "rotary_pct": 1.0}  # as that version has them
    config = GPTNeoXConfig(
        vocab_size=98,
        hidden_size=16,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=6,
        pad_token_id=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **names,
    )
    model = GPTNeoXForCausalLM(config).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.arange(98)[None]).logits
    save_file({"logits": logits}, folder / "logits.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
