"""CoT and SCoT generation with any runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import CompiledMachine, read_output, read_summary
from compile_tm.program.compiled import Decoder


@dataclass(frozen=True, slots=True)
class Generation:
    """Generated sequences of one word."""

    segments: tuple[npt.NDArray[np.int32], ...]
    """Ids of each segment, prompts included; CoT has one."""
    output: tuple[str, ...] | None
    """T_CoT(w) or T_SCoT(w); None if undefined."""

    @property
    def num_tokens(self) -> int:
        """t_T(w): number of tokens of all segments, prompts included."""
        return sum(map(len, self.segments))


def generate_words(
    decoder: Decoder,
    compiled: CompiledMachine,
    words: Sequence[str | Sequence[str]],
    *,
    max_segments: int = 1_000_000,
) -> list[Generation]:
    """Generate all segments of words, one batch for each round of segments.

    Args:
        decoder: Runtime of the program.
        compiled: The compiled machine.
        words: Inputs.
        max_segments: Maximum number of segments of a word.

    Raises:
        ValueError: a symbol outside the input alphabet.
    """
    vocabulary, stop = compiled.vocabulary, compiled.stop_ids
    prompts = dict(enumerate(vocabulary.input_ids(word) for word in words))
    segments: list[list[npt.NDArray[np.int32]]] = [[] for _ in words]
    outputs: list[tuple[str, ...] | None] = [None] * len(words)
    for _ in range(max_segments):
        if not prompts:
            break
        rows = list(prompts)
        generated = decoder.generate([prompts[row] for row in rows], stop=stop)
        for row, ids in zip(rows, generated, strict=True):
            segments[row].append(ids)
            new = ids[len(prompts.pop(row)) :]
            summary = read_summary(new, vocabulary) if compiled.mode == "scot" else None
            if summary is not None:
                prompts[row] = summary
            elif len(new):
                outputs[row] = read_output(vocabulary.tokens(new))
    return [
        Generation(tuple(parts), output) for parts, output in zip(segments, outputs, strict=True)
    ]
