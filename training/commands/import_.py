"""`sudocot train import`: convert checkpoints of the paper's authors to model folders."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from data.runtime.ranges import SegmentTokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Convert a GPT-NeoX checkpoint of the paper's authors into a model folder.

    Examples:
        sudocot train import checkpoints/scot_l6 models/scot-l6 --mode scot
    """

    source: tyro.conf.Positional[Path]
    """Folder with config.json and pytorch_model.bin or model.safetensors."""
    target: tyro.conf.Positional[Path]
    """Folder to write; it must not exist."""
    mode: Literal["cot", "scot"]
    """Mode that the model was trained for, which the checkpoint does not state."""
    segment_tokens: SegmentTokens = 512
    """Minimum trace tokens before a summary (SCoT)."""


def main(config: Config) -> int:
    """Run the command."""
    from training.checkpoints.import_checkpoint import import_checkpoint

    model = import_checkpoint(
        config.source, config.target, mode=config.mode, segment_tokens=config.segment_tokens
    )
    logger.info(
        "%s: %d layers of width %d, rope base %g",
        config.target,
        model.num_layers,
        model.hidden_size,
        model.rope_theta,
    )
    return 0
