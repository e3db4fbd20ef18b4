"""Certifies that the tokens of an evaluation do not depend on the order of summation.

The order of summation in a matrix product depends on the batch, on chunked prefill and on the
number of threads, and changes logits by rounding errors. A greedy token is safe if its logit
exceeds all others by more than twice the bound on this change. Each generated token is therefore
scored again:

    certified  the margins of all tokens exceed twice the bound on the change of a logit
    replayed   a margin does not, but decoding the puzzle alone in fp32 gives the same tokens
    different  decoding the puzzle alone in fp32 gives different tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from eval.engines.contract import Request
from eval.engines.puzzle_run import PuzzleRun, input_prompt, join
from eval.engines.streaming import SlotSequence, stream_tokens
from eval.inspect.first_wrong import first_wrong
from eval.inspect.replay import Logits
from eval.network.model_folder import ModelFolder
from eval.network.types import Span, TokenNetwork
from eval.results.certificates import Certificate, ReorderingBound, Status
from solver.vocabulary import SUMMARY, Tokens, suffix_from_last

BATCH_ROWS = (255, 256, 257)
"""Batch sizes in rows; matrix libraries switch kernels near 256."""
CHUNK_TOKENS = (1, 7, 64)
"""Chunk sizes of chunked prefill."""
_MAX_LENGTH = 192
"""Maximum length of the sequences used to measure the bound."""


def measure_bound(
    network: TokenNetwork, pairs: Sequence[tuple[Tokens, Tokens]], *, num_additions: int
) -> ReorderingBound:
    """Measure the change of logits over batch sizes, chunk sizes and numbers of threads.

    Args:
        network: The model.
        pairs: Prompts and their generated ids.
        num_additions: Number of additions per logit (`count_additions`).
    """
    longest = min(_MAX_LENGTH, network.max_positions)
    sequences = [join(*pair)[:longest] for pair in pairs]
    alone = [_score(network, [ids])[0] for ids in sequences]
    worst, worst_case = 0.0, "none"

    def compare(name: str, found: Sequence[Logits]) -> None:
        nonlocal worst, worst_case
        for logits, expected in zip(found, alone, strict=True):
            difference = float(np.abs(logits - expected).max())
            if difference > worst:
                worst, worst_case = difference, name

    for size in CHUNK_TOKENS:
        compare(f"chunks of {size}", [_score_chunks(network, ids, size) for ids in sequences])
    for num_rows in BATCH_ROWS:
        found = [_score_beside(network, sequences, first, num_rows) for first in range(len(alone))]
        compare(f"batches of {num_rows} rows", found)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1 if threads == 1 else 1)
        compare(f"{torch.get_num_threads()} threads", [_score(network, [s])[0] for s in sequences])
    finally:
        torch.set_num_threads(threads)
    largest = max(float(np.abs(logits).max()) for logits in alone)
    roundoff = 2.0 ** (-9 if network.precision.activations == "bf16" else -24)
    return ReorderingBound(
        measured=worst,
        worst_case=worst_case,
        derived=roundoff * num_additions**0.5 * largest,
        num_logits=sum(logits.size for logits in alone),
    )


def certify(
    network: TokenNetwork,
    bound: ReorderingBound,
    request: Request,
    segments: Sequence[Tokens],
    *,
    replay_network: TokenNetwork,
    segment_tokens: int | None = None,
) -> Certificate:
    """Certify the tokens of a puzzle, or decode it again.

    Args:
        network: The model in the precision of the evaluation.
        bound: Bound for this model and precision.
        request: The puzzle.
        segments: Generated ids of each segment.
        replay_network: The model in fp32, used to decode the puzzle alone.
        segment_tokens: Trace tokens of a segment, to find the first token that is not the solver's;
            None for CoT.
    """
    margins = _margins(network, request, segments)
    wrong = first_wrong(request.board, request.givens, segments, segment_tokens=segment_tokens)
    status = Status.CERTIFIED
    if not (margins > bound.margin).all():
        run = PuzzleRun(request, max_positions=replay_network.max_positions)
        for _ in stream_tokens(SlotSequence(replay_network), run):
            pass
        again = run.result().segments
        is_same = len(again) == len(segments) and all(map(np.array_equal, again, segments))
        status = Status.REPLAYED if is_same else Status.DIFFERENT
    return Certificate(
        key=request.key,
        status=status,
        least_margin=float(margins.min()) if margins.size else None,
        wrong_margin=(
            float(margins[wrong.generated]) if wrong and wrong.generated < len(margins) else None
        ),
    )


def count_additions(folder: ModelFolder) -> int:
    """Return the number of additions on the path to a logit of a model."""
    shape = folder.network_config
    assert shape is not None, "a network computes it"
    per_layer = 2 * shape.hidden_size + shape.feed_forward_size + _MAX_LENGTH
    return shape.num_layers * per_layer + shape.hidden_size


def sequences_of(request: Request, segments: Sequence[Tokens]) -> list[tuple[Tokens, Tokens]]:
    """Return the prompt and the generated ids of each segment."""
    prompts = [input_prompt(request)]
    for before in segments[:-1]:
        prompt = suffix_from_last(before, SUMMARY)
        assert prompt is not None, "a segment that another one follows ends with a summary"
        prompts.append(prompt)
    return list(zip(prompts, segments, strict=False))


def _margins(network: TokenNetwork, request: Request, segments: Sequence[Tokens]) -> Logits:
    """Return the logit of each generated token minus the largest other logit."""
    margins = [np.empty(0, dtype=np.float32)]
    for prompt, tokens in sequences_of(request, segments):
        ids = join(prompt, tokens)
        logits = _score(network, [ids[:-1]])[0][len(prompt) - 1 :]
        rows = np.arange(len(tokens))
        chosen = logits[rows, tokens]
        others = logits.copy()
        others[rows, tokens] = -np.inf
        margins.append(chosen - others.max(axis=1))
    return cast("Logits", np.concatenate(margins))


def _score(network: TokenNetwork, sequences: Sequence[Tokens]) -> list[Logits]:
    """Return the logits at all positions of sequences, computed in one pass."""
    longest = max(map(len, sequences))
    cache = network.new_cache(num_slots=len(sequences), capacity=longest)
    # In reverse order, so that slots differ from batch indices.
    slots = reversed(range(len(sequences)))
    spans = [Span(slot=s, start=0, tokens=ids) for s, ids in zip(slots, sequences, strict=True)]
    logits: Logits = network.prefill(cache, spans).cpu().numpy()
    return np.split(logits, np.cumsum([len(ids) for ids in sequences])[:-1])


def _score_chunks(network: TokenNetwork, ids: Tokens, size: int) -> Logits:
    cache = network.new_cache(num_slots=1, capacity=len(ids))
    parts = [
        network.prefill(cache, [Span(slot=0, start=start, tokens=ids[start : start + size])])
        for start in range(0, len(ids), size)
    ]
    logits: Logits = torch.cat(parts).cpu().numpy()
    return logits


def _score_beside(
    network: TokenNetwork, sequences: Sequence[Tokens], first: int, num_rows: int
) -> Logits:
    """Score a sequence in a batch of `num_rows` rows filled up with other sequences."""
    batch, left, index = [sequences[first]], num_rows - len(sequences[first]), first
    while left > 0:
        index = (index + 1) % len(sequences)
        batch.append(sequences[index][:left])
        left -= len(batch[-1])
    return _score(network, batch)[0]
