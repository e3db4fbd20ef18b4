"""Small models that memorize some 4x4 puzzles in seconds and fail on most others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from data.model_format.facts import Mode, ModelFacts
from data.store import TokenStore
from eval.engines.contract import Caps, Request
from solver.mrv.tracer import TRACE_RULE
from solver.vocabulary import PAD
from tests.training.toy import BOARD, toy_puzzle, write_toy_data
from training.checkpoints.export import export_model
from training.models.build import build_model
from training.models.families import ModelConfig

SEGMENT_TOKENS = 20
NUM_PUZZLES = 24
_NUM_UPDATES, _BATCH = 250, 24


def train_model(family: str, folder: Path) -> Path:
    """Train on the SCoT of `NUM_PUZZLES` puzzles and export; heads are as vLLM wants them on CPUs.

    Returns:
        The model folder.
    """
    config = ModelConfig(
        board=BOARD.name,
        family=family,
        hidden_size=64,
        num_layers=2,
        num_heads=2,
        max_positions=256,
        rope_theta=500.0,
    )
    model = build_model(config, seed=0)
    store = write_toy_data(folder / "data", num_puzzles=NUM_PUZZLES, segment_tokens=SEGMENT_TOKENS)
    _fit(model, store)
    facts = ModelFacts(
        board=BOARD.name,
        mode="scot",
        trace_rule=TRACE_RULE,
        segment_tokens=SEGMENT_TOKENS,
        data_digest=None,
        precision=None,
    )
    export_model(model, folder / "model", facts=facts)
    return folder / "model"


def _fit(model: PreTrainedModel, store: TokenStore) -> None:
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=_NUM_UPDATES)
    for _ in range(_NUM_UPDATES):
        rows = rng.permutation(len(store))[:_BATCH]
        width = int(store.lengths[rows].max())
        ids = np.full((len(rows), width), PAD, dtype=np.int64)
        is_target = np.zeros((len(rows), width), dtype=bool)
        for place, row in enumerate(rows):
            ids[place, : store.lengths[row]] = store[int(row)]
            is_target[place, store.prompt_lengths[row] : store.lengths[row]] = True
        tokens = torch.from_numpy(ids)
        logits = model(tokens[:, :-1]).logits
        targets = tokens[:, 1:].masked_fill(~torch.from_numpy(is_target[:, 1:]), -100)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def known_and_new_requests(num: int, *, mode: Mode, caps: Caps) -> list[Request]:
    """The puzzles that the model was trained on, then others of the same kind."""
    rng = np.random.default_rng(0)  # the seed of the training puzzles
    givens: dict[bytes, Request] = {}
    while len(givens) < num:
        puzzle = toy_puzzle(rng)
        givens[puzzle.tobytes()] = Request(
            key=f"puzzle-{len(givens)}", board=BOARD, givens=puzzle, mode=mode, caps=caps
        )
    return list(givens.values())
