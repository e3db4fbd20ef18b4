"""`sudocot eval certify`: certifies that tokens do not depend on the order of summation."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from data.model_format.precision import UNKNOWN_PRECISION, get_precision
from data.runtime.locks import locked_folder
from data.runtime.progress import progress
from data.runtime.ranges import check_ranges
from data.runtime.tables import print_table
from eval.results.certificates import Certificate, Certificates, Status
from eval.results.folder import EvaluationFolder
from eval.results.runner import request_of

if TYPE_CHECKING:
    from eval.network.model_folder import ModelFolder

_MAX_SHOWN = 20

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Score each generated token again, and write certificates.json to the evaluation folder.

    A puzzle is certified if the margins of all its tokens exceed twice the change of a logit by the
    order of summation, measured over batch sizes, chunks, slots and threads. Other puzzles are
    decoded again, alone and in fp32. The evaluation needs --keep-tokens. The exit code is 1 if the
    tokens of a puzzle differ.

    Examples:
        sudocot eval certify evals/10k --model runs/scot/final
    """

    evaluation: Positional[Path]
    """Folder of the evaluation."""
    model: Path
    """Model folder that was evaluated."""
    bound_puzzles: Annotated[int, Ge(1), Le(1000)] = 8
    """Puzzles used to measure the bound."""
    device: str = "cpu"
    """Device: cpu, cuda or cuda:N; auto uses a GPU if available."""

    def __post_init__(self) -> None:
        check_ranges(self)


def main(config: Config) -> int:
    """Certify the evaluation and print the counts."""
    from eval.network.model_folder import ModelFolder

    folder = EvaluationFolder.open(config.evaluation)
    model = ModelFolder.open(config.model)
    if model.weights_digest != folder.config.model.digest:
        raise ValueError(
            f"model: got digest {model.weights_digest[:16]}, allowed is that of the evaluation, "
            f"{folder.config.model.digest[:16]}"
        )
    if folder.config.precision == UNKNOWN_PRECISION:
        raise ValueError(
            f"{folder.path}: precision: got {UNKNOWN_PRECISION.name}, as of a server; allowed are "
            "evaluations of local models"
        )
    if not folder.config.keeps_tokens:
        raise ValueError(f"{folder.path}: no stored tokens; evaluate with --keep-tokens")
    with locked_folder(folder.path):
        certificates = _certify(config, folder, model)
        folder.write_certificates(certificates)
    bound = certificates.bound
    logger.info(
        "bound on a logit: measured %.2g (%s), derived %.2g",
        bound.measured,
        bound.worst_case,
        bound.derived,
    )
    console = Console(markup=False)
    counts = [(str(status), f"{certificates.count(status):,}") for status in Status]
    print_table(console, str(folder.path), ("tokens", "puzzles"), counts)
    different = [c.key for c in certificates.puzzles if c.status is Status.DIFFERENT]
    if different:
        console.print(f"different: {', '.join(different[:_MAX_SHOWN])}")
    return int(bool(different))


def _certify(config: Config, folder: EvaluationFolder, model: ModelFolder) -> Certificates:
    from eval.engines.factory import make_network
    from eval.inspect.certificates import certify, count_additions, measure_bound, sequences_of
    from eval.inspect.first_wrong import segment_tokens_of
    from eval.network.device import open_device

    device = open_device(config.device)
    precision = folder.config.precision
    network = make_network(model, precision=get_precision(precision.name), device=device)
    replay = make_network(model, precision=get_precision("fp32"), device=device)
    generated = folder.generated(row.key for row in folder.rows)
    rows = [row for row in folder.rows if row.key in generated]
    requests = [request_of(folder.board, row.puzzle, folder.config) for row in rows]
    sequences = [
        sequence
        for request in requests[: config.bound_puzzles]
        for sequence in sequences_of(request, generated[request.key])[:1]
    ]
    if not sequences:
        raise ValueError(f"{folder.path}: no generated tokens in any puzzle")
    logger.info("measuring the bound on %d segments", len(sequences))
    bound = measure_bound(network, sequences, num_additions=count_additions(model))
    certificates: list[Certificate] = []
    with progress("certifying", total=len(requests), unit="puzzles") as advance:
        for request in requests:
            certificates.append(
                certify(
                    network,
                    bound,
                    request,
                    generated[request.key],
                    replay_network=replay,
                    segment_tokens=segment_tokens_of(folder.config),
                )
            )
            advance(1)
    return Certificates(
        model_digest=model.weights_digest,
        precision=precision.name,
        bound=bound,
        puzzles=tuple(certificates),
    )
