"""Token agreement of the engines: `python -m scripts.bench.agreement --models M --puzzles FILE`.

Every installed engine decodes the same puzzles. Each row has the results of an engine, the number
of puzzles with the same tokens as the first engine, and, over the other puzzles, the largest margin
between the top two logits at the first difference. In fp32, engines may differ only where the
margin is below rounding; the exit code is 1 if one differs elsewhere. In bf16 the rows show how
often engines differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from tyro.conf import OmitArgPrefixes

from data.model_format.precision import get_precision
from eval.engines.contract import FinishReason, Request, Result
from eval.inspect.differences import Difference, first_difference, preference_at
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from scripts.bench.decoding import CaseConfig, describe, use_all_cpus
from scripts.bench.harness import Report

TIE = 1e-4
"""Logit margin below which the order of summation can change the argmax in fp32; logits are of
order 10."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare the tokens of engines on models."""

    case: OmitArgPrefixes[CaseConfig]
    """Models, puzzles and engines."""


def main(config: Config) -> int:
    """Decode, compare and print."""
    case = config.case
    use_all_cpus()
    rows = []
    for folder, requests in case.cases():
        results = {name: _decode(name, folder, requests, case) for name in case.engines}
        rows += agreement_rows(folder, requests, results)
    title = f"agreement, {case.num_slots} slots, {case.precision}"
    Report(title=title, rows=rows, facts=case.facts()).publish(case.out)
    widest = max(row["widest margin"] or 0.0 for row in rows)
    return int(case.precision == "fp32" and widest >= TIE)


def agreement_rows(
    folder: ModelFolder,
    requests: Sequence[Request],
    results: Mapping[str, Mapping[str, Result]],
) -> list[dict[str, Any]]:
    """Return one row per engine.

    Args:
        folder: Model.
        requests: Puzzles.
        results: Results by engine and key; engines are compared with the first.
    """
    first = next(iter(results.values()))
    network: Network | None = None
    rows = []
    for name, ours in results.items():
        differences = _differences(requests, first, ours)
        if differences and network is None:
            network = Network(folder, precision=get_precision("fp32"), device=torch.device("cpu"))
        margins = [preference_at(network, part).margin for part in differences if network]
        ends = Counter(result.finish_reason for result in ours.values())
        rows.append(
            {
                "model": describe(folder),
                "engine": name,
                "puzzles": len(ours),
                "solved": ends.pop(FinishReason.SOLVED, 0),
                "failed": ", ".join(f"{end} {count}" for end, count in sorted(ends.items())) or "-",
                "segments": sum(result.num_segments for result in ours.values()),
                "tokens": sum(result.num_new_tokens for result in ours.values()),
                "same": len(ours) - len(differences),
                "widest margin": max(margins, default=None),
            }
        )
    return rows


def _decode(
    name: str, folder: ModelFolder, requests: Sequence[Request], case: CaseConfig
) -> dict[str, Result]:
    engine = case.engine(name, folder)
    try:
        return {result.key: result for result in engine.decode(requests)}
    finally:
        engine.close()


def _differences(
    requests: Sequence[Request], first: Mapping[str, Result], ours: Mapping[str, Result]
) -> list[Difference]:
    """Return the first differing token of each puzzle whose tokens differ."""
    differences = []
    for request in requests:
        pair = first[request.key].segments, ours[request.key].segments
        _, difference = first_difference(request, pair)
        if difference is not None:
            differences.append(difference)
    return differences


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
