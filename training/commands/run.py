r"""`sudocot train run`: train a model on a data set, or resume its training.

    sudocot train run --data DATA --out RUN --preset small --model small-6x6 --held-out TEST
    accelerate launch --config-file scripts/accelerate/ddp.yaml --no_python \
        sudocot train run --data DATA --out RUN

The same command resumes an interrupted run, and does nothing if the run is finished.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import tyro

from data.model_format.facts import check_model_folder
from data.runtime.options import option_value
from data.store import MANIFEST_NAME, read_manifest
from training.config import TrainConfig, make_config
from training.run_folder import has_progress

Config = TrainConfig
DEFAULT_PRESET = "paper"

NOT_FINITE = 1

logger = logging.getLogger(__name__)


def base_config(options: Sequence[str]) -> TrainConfig:
    """Return the defaults of the options, given the `--preset` and `--model` among them.

    Without a `--model`, the board of the data determines the board of the model.
    """
    missing = cast("Path", tyro.MISSING)
    preset = option_value(options, "--preset") or DEFAULT_PRESET
    data, model = option_value(options, "--data"), option_value(options, "--model")
    board = None
    if data is not None and (Path(data) / MANIFEST_NAME).is_file():
        board = read_manifest(Path(data)).board
    return make_config(preset, data=missing, out=missing, model=model, board=board)


def main(config: TrainConfig) -> int:
    """Run the command."""
    # Fast checks run before torch is imported, which takes seconds.
    for folder in (config.data, config.held_out):
        if folder is not None:
            read_manifest(folder)
    if config.init_from is not None and not has_progress(config.out):
        check_model_folder(config.init_from)
    from training.run import train

    try:
        return train(config)
    except FloatingPointError as error:
        logger.error("%s", error)
        return NOT_FINITE
