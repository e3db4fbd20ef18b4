"""One puzzle, token by token, as a model writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch

from eval.network_types import Span, TokenNetwork
from eval.puzzle_run import PuzzleRun
from solver.vocabulary import STOP_TOKENS, Tokens


def stream_tokens(network: TokenNetwork, run: PuzzleRun) -> Iterator[int]:
    """Decode a puzzle greedily and yield each token at once; `run` has the result in the end.

    `run.prompt` is the prompt of a token's segment until the next token is asked for.

    Raises:
        FloatingPointError: the model's logits are not finite.
    """
    # On a CPU, what is not written to takes no memory.
    cache = network.new_cache(num_slots=1, capacity=network.max_positions)
    while run.ended_by is None:
        prompt, tokens = run.prompt, list[int]()
        span = Span(slot=0, start=0, tokens=prompt)
        logits = network.extend(cache, [span], is_last_only=True)
        while True:
            if not logits.isfinite().all():
                raise FloatingPointError(
                    f"puzzle {run.request.key}: the model's logits are not finite"
                )
            tokens.append(int(logits[0].argmax()))
            yield tokens[-1]
            if tokens[-1] in STOP_TOKENS or len(tokens) == run.allowance:
                break
            position = len(prompt) + len(tokens) - 1
            logits = network.step(
                cache, torch.tensor(tokens[-1:]), torch.tensor([position]), bound=position + 1
            )
        run.end_segment(cast("Tokens", np.array(tokens)))
