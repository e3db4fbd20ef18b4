"""Parameter counts of the paper's models, as built here and as published."""

from __future__ import annotations

from dataclasses import dataclass

PAPER_PARAMETERS = {
    "paper-l4": 12_710_912,
    "paper-l5": 15_863_296,
    "paper-l6": 19_015_680,
    "paper-l7": 22_168_064,
    "paper-l8": 25_320_448,
    "paper-l12": 85_206_528,
}
"""Published parameter counts by model preset (paper, table of model sizes)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """One model."""

    preset: str
    """Model preset."""
    hidden_size: int
    """Width d."""
    num_heads: int
    """Heads H."""
    num_layers: int
    """Layers L."""
    num_parameters: int
    """Parameters as built here."""
    paper: int
    """Parameters as published."""


def read_model_sizes() -> list[ModelSize]:
    """Count the parameters of the paper's models, on the meta device."""
    import torch
    from transformers import AutoModelForCausalLM

    from training.models.build import count_parameters, transformers_config
    from training.models.families import MODEL_PRESETS

    sizes = []
    for preset, paper in PAPER_PARAMETERS.items():
        config = MODEL_PRESETS[preset]()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(transformers_config(config))
        sizes.append(
            ModelSize(
                preset=preset,
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                num_layers=config.num_layers,
                num_parameters=count_parameters(model),
                paper=paper,
            )
        )
    return sizes
