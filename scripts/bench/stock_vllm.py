"""Compiled models in vLLM: `python -m scripts.bench.stock_vllm FOLDER ... --precisions fp32 bf16`.

Each sequence of a folder's `self_test.json` is scored in one prefill: the most likely token after
each prefix is compared with the next token. Then the first tokens after each prompt are decoded,
with all sequences in one batch. The exit code is 1 if any token differs. vLLM runs in this process,
with one thread unless OMP_NUM_THREADS is set.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from vllm import LLM

Segment = tuple[list[int], int]
IN_PROCESS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Threads pinned to a busy core would wait for it, even if other cores are idle.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compare the tokens of compiled models in vLLM with their self-tests."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of `sudocot compile`, architecture llama or gpt-neox."""
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    """Formats of weights and activations."""
    decoded_tokens: int = 64
    """Maximum number of tokens to decode after each prompt."""
    cache_bytes: int = 640 << 20
    """Memory of the KV cache."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Compare and print; return 0 if all tokens are correct, else 1."""
    os.environ.update(IN_PROCESS | dict(os.environ))
    rows = []
    for folder in config.folders:
        segments = _read_segments(folder)
        for precision in config.precisions:
            rows.append(_row(folder, precision, segments, config))
            print(rows[-1], file=sys.stderr, flush=True)
    # Imported late, since it imports numba: on startup on a CPU, vLLM inspects the attributes of
    # all objects of all modules, and fails on an object of llvmlite that has every attribute.
    from scripts.bench.harness import Report

    Report(title="Compiled models in vLLM", rows=rows, facts={}).publish(config.out)
    return int(any(row["wrong"] or row["decoded wrong"] for row in rows))


def _read_segments(folder: Path) -> list[Segment]:
    cases = json.loads((folder / "self_test.json").read_text())
    return [(part["ids"], part["prompt_length"]) for case in cases for part in case["segments"]]


def open_llm(folder: Path, precision: str, *, num_sequences: int, cache_bytes: int) -> LLM:
    """Load a model folder into vLLM, without a tokenizer, compilation and prefix caching."""
    from vllm import LLM

    return LLM(
        model=str(folder),
        dtype={"fp32": "float32", "bf16": "bfloat16"}[precision],
        skip_tokenizer_init=True,
        enforce_eager=True,
        kv_cache_memory_bytes=cache_bytes,
        max_num_seqs=num_sequences,
        enable_prefix_caching=False,
        seed=0,
    )


def prompt_logprobs(llm: LLM, ids: list[int]) -> list[Any]:
    """Return the logprobs of each token (n,) and of the most likely one; None for the first."""
    from vllm import SamplingParams

    ask = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    (output,) = llm.generate({"prompt_token_ids": ids}, ask, use_tqdm=False)
    assert output.prompt_logprobs is not None
    return list(output.prompt_logprobs)


def _row(
    folder: Path, precision: str, segments: Sequence[Segment], config: Config
) -> dict[str, Any]:
    start = time.process_time()
    num_sequences = max(2, len(segments))
    llm = open_llm(folder, precision, num_sequences=num_sequences, cache_bytes=config.cache_bytes)
    try:
        num_wrong = sum(_num_wrong(llm, segment) for segment in segments)
        decoded, decoded_wrong = _decode(llm, segments, config.decoded_tokens)
    finally:
        del llm
        gc.collect()
    return {
        "model": folder.name,
        "precision": precision,
        "segments": len(segments),
        "longest": max(len(ids) for ids, _ in segments),
        "tokens": sum(len(ids) - length for ids, length in segments),
        "wrong": num_wrong,
        "decoded": decoded,
        "decoded wrong": decoded_wrong,
        "cpu s": time.process_time() - start,
    }


def _num_wrong(llm: LLM, segment: Segment) -> int:
    """Return the number of tokens after the prompt that are not the argmax of their prefix."""
    ids, length = segment
    found = zip(ids, prompt_logprobs(llm, ids), strict=True)
    return sum(entry is None or entry[token].rank != 1 for token, entry in list(found)[length:])


def _decode(llm: LLM, segments: Sequence[Segment], num_tokens: int) -> tuple[int, int]:
    """Decode after each prompt; return the numbers of compared and of wrong tokens."""
    from vllm import SamplingParams

    expected = [ids[length : length + num_tokens] for ids, length in segments]
    outputs = llm.generate(
        [{"prompt_token_ids": ids[:length]} for ids, length in segments],
        [
            SamplingParams(temperature=0.0, max_tokens=len(ids), ignore_eos=True, detokenize=False)
            for ids in expected
        ],
        use_tqdm=False,
    )
    pairs = [
        pair
        for ids, output in zip(expected, outputs, strict=True)
        for pair in zip(ids, output.outputs[0].token_ids, strict=True)
    ]
    return len(pairs), sum(ours != theirs for ours, theirs in pairs)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
