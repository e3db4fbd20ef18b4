"""vLLM scores its own tokens: `python -m scripts.bench.vllm_scoring MODEL --puzzles FILE`.

Batches of puzzles are decoded greedily. Then each sequence is read at once, and the token with the
largest prompt logprob at each position is compared with the decoded one (vLLM issue 48271: on GPUs
they differ at sequences of 256 tokens or more, since the block size of a kernel depends on the
number of rows). The margin is the logprob of the largest minus that of the decoded token. A second
column compares the decoded tokens with those of the largest batch. vLLM runs in this process, with
one thread unless OMP_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tyro

from scripts.bench.stock_vllm import IN_PROCESS, open_llm, prompt_logprobs
from solver.boards import Board, get_board
from solver.puzzle_io.cells import CellError, read_grid
from solver.vocabulary import DECODING_STOPS, END_INPUT, INPUT, Vocabulary

if TYPE_CHECKING:
    from vllm import LLM

LONG = 256
"""Length of a sequence from which GPUs take another kernel configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compare decoding and scoring."""

    model: tyro.conf.Positional[Path]
    """Model folder."""
    puzzles: Path
    """Text file with one puzzle per line, `.` or `0` for blanks."""
    board: str = "6x6"
    """Board of the puzzles."""
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    """Formats of weights and activations."""
    batch_sizes: tuple[int, ...] = (1, 64, 255, 256, 257)
    """Sequences decoded at once."""
    decoded_tokens: int = 300
    """Tokens to decode after each prompt, at most."""
    cache_bytes: int = 640 << 20
    """Memory for keys and values."""
    out: Path | None = None
    """JSON file to write."""

    def __post_init__(self) -> None:
        if min(self.batch_sizes) < 1 or self.decoded_tokens < 1:
            raise ValueError("batch_sizes and decoded_tokens: allowed are 1 or more")


class Score(NamedTuple):
    """Comparison of the decoded tokens of one sequence with its prompt logprobs."""

    num_tokens: int
    num_long: int
    """Tokens at positions from `LONG` on."""
    margins: list[float]
    """Logprob margin of each differing position."""
    num_long_different: int


def main(config: Config) -> int:
    """Decode, score and print."""
    os.environ.update(IN_PROCESS | dict(os.environ))
    prompts = read_prompts(config.puzzles, get_board(config.board))
    if len(prompts) < max(config.batch_sizes):
        raise ValueError(
            f"{config.puzzles}: got {len(prompts)} puzzles, allowed are at least "
            f"{max(config.batch_sizes)}"
        )
    rows = []
    for precision in config.precisions:
        for row in _rows(config, prompts, precision):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    # It imports numba, which must not be loaded when vLLM starts (`scripts.bench.stock_vllm`).
    from scripts.bench.harness import Report

    facts = {"model": config.model.name, "decoded_tokens": config.decoded_tokens}
    Report(title="Prompt logprobs of greedy tokens in vLLM", rows=rows, facts=facts).publish(
        config.out
    )
    return 0


def read_prompts(path: Path, board: Board) -> list[list[int]]:
    """Read puzzles and return their input blocks.

    Raises:
        ValueError: A line is not a puzzle of the board; the message has file, line and column.
    """
    vocabulary = Vocabulary(board)
    prompts = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            cells = read_grid(board, line).tolist()
        except CellError as error:
            raise ValueError(f"{path}:{number}:{error.offset + 1}: {error}") from None
        givens = [
            (vocabulary.first_coordinate + cell, vocabulary.first_digit + digit - 1)
            for cell, digit in enumerate(cells)
            if digit
        ]
        prompts.append([INPUT, *(token for pair in givens for token in pair), END_INPUT])
    return prompts


def _rows(config: Config, prompts: Sequence[list[int]], precision: str) -> list[dict[str, Any]]:
    llm = open_llm(
        config.model,
        precision,
        num_sequences=max(config.batch_sizes),
        cache_bytes=config.cache_bytes,
    )
    try:
        decoded = {}
        seconds = {}
        for size in config.batch_sizes:
            start = time.process_time()
            decoded[size] = _decode(llm, prompts[:size], config.decoded_tokens)
            seconds[size] = time.process_time() - start
        largest = decoded[max(config.batch_sizes)]
        rows = []
        for size, sequences in decoded.items():
            start = time.process_time()
            scores = [
                _score(llm, prompt, tokens)
                for prompt, tokens in zip(prompts, sequences, strict=False)
            ]
            margins = [margin for score in scores for margin in score.margins]
            rows.append(
                {
                    "precision": precision,
                    "batch": size,
                    "tokens": sum(score.num_tokens for score in scores),
                    "different": len(margins),
                    f"from {LONG} on": sum(score.num_long for score in scores),
                    "of these different": sum(score.num_long_different for score in scores),
                    "largest margin": max(margins, default=None),
                    "decoded unlike largest batch": sum(
                        ours != theirs for ours, theirs in zip(sequences, largest, strict=False)
                    ),
                    "cpu s": seconds[size] + time.process_time() - start,
                }
            )
        return rows
    finally:
        del llm
        gc.collect()


def _decode(llm: LLM, prompts: Sequence[list[int]], num_tokens: int) -> list[list[int]]:
    """Decode all prompts in one batch."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=num_tokens,
        stop_token_ids=list(DECODING_STOPS),
        ignore_eos=True,
        detokenize=False,
    )
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


def _score(llm: LLM, prompt: list[int], tokens: list[int]) -> Score:
    """Read a prompt and its decoded tokens in one forward pass, and compare each position."""
    ids = prompt + tokens
    margins, num_long_different = [], 0
    positions = enumerate(zip(ids, prompt_logprobs(llm, ids), strict=True))
    for position, (token, entry) in islice(positions, len(prompt), None):
        assert entry is not None, position
        margin = max(found.logprob for found in entry.values()) - entry[token].logprob
        # A token that is not the first in the list of equal ones has a margin of 0.
        if margin > 0:
            margins.append(margin)
            num_long_different += position >= LONG
    return Score(
        len(tokens), max(0, len(ids) - max(LONG, len(prompt))), margins, num_long_different
    )


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
