"""Tests of certificates: certified and replayed tokens, and an injected reordering fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.model_format.precision import UNKNOWN_PRECISION, PrecisionName, get_precision
from data.runtime.digests import find_damaged, read_digests
from eval.commands.certify import Config, main
from eval.engines.segment import SegmentEngine
from eval.inspect.certificates import certify, count_additions, measure_bound, sequences_of
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from eval.results.certificates import (
    CERTIFICATES_FILE,
    Certificates,
    ReorderingBound,
    Status,
    read_certificates,
    write_certificates,
)
from eval.results.folder import SUMMARY_FILE
from tests.eval.evaluations import write_evaluation
from tests.eval.toy_models import export, make_model, toy_requests

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return ModelFolder.open(export(make_model("llama"), tmp_path_factory.mktemp("m") / "llama"))


def test_tokens_are_certified_or_replayed_and_faults_are_found(
    folder: ModelFolder, tmp_path: Path
) -> None:
    network = Network(folder, precision=get_precision("fp32"), device=CPU)
    requests = toy_requests(4, mode="cot", max_new_tokens=24, segment=24)
    results = {r.key: r for r in SegmentEngine(network, num_slots=4).decode(requests)}
    pairs = [sequences_of(r, results[r.key].segments)[0] for r in requests]
    bound = measure_bound(network, pairs, num_additions=count_additions(folder))
    assert 0 < bound.measured < bound.margin < 1e-2
    assert bound.worst_case != "none"

    def statuses(margin_of: float) -> list[Status]:
        wide = replace(bound, measured=margin_of / 2)
        return [
            certify(network, wide, r, results[r.key].segments, replay_network=network).status
            for r in requests
        ]

    assert set(statuses(0.0)) == {Status.CERTIFIED}
    # With a bound above every margin all are decoded again, alone, and are the same.
    assert set(statuses(1e6)) == {Status.REPLAYED}

    # A fault of the order of summation writes the second best token somewhere.
    request = max(requests, key=lambda request: results[request.key].num_new_tokens)
    (tokens,) = results[request.key].segments
    wrong = tokens.copy()
    wrong[0] = (int(wrong[0]) + 1) % 7
    fault = certify(network, bound, request, (wrong,), replay_network=network)
    assert fault.status is Status.DIFFERENT
    assert fault.wrong_margin is not None
    assert fault.least_margin is not None
    assert fault.least_margin < 0

    certificates = Certificates(
        model_digest="0" * 64, precision="fp32", bound=bound, puzzles=(fault,)
    )
    assert read_certificates(tmp_path) is None
    write_certificates(tmp_path, certificates)
    assert read_certificates(tmp_path) == certificates
    assert certificates.count(Status.DIFFERENT) == 1


def test_certificates_of_a_finished_evaluation_have_a_digest(tmp_path: Path) -> None:
    bound = ReorderingBound(measured=0.1, worst_case="none", derived=0.1, num_logits=1)
    certificates = Certificates(model_digest="0" * 64, precision="fp32", bound=bound, puzzles=())
    evaluation = write_evaluation(tmp_path / "e")
    for _ in range(2):
        evaluation.write_certificates(certificates)
        digests = read_digests(evaluation.path)
        assert CERTIFICATES_FILE in digests
        assert find_damaged(evaluation.path, digests) == []
    path = evaluation.path / CERTIFICATES_FILE
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(ValueError, match=r"certificates\.json: damaged"):
        read_certificates(evaluation.path)
    evaluation.finish()
    (evaluation.path / SUMMARY_FILE).write_text("{}")
    with pytest.raises(ValueError, match=r"summary\.json: damaged"):
        evaluation.write_certificates(certificates)


def test_replies_of_a_server_cannot_be_certified(folder: ModelFolder, tmp_path: Path) -> None:
    evaluation = write_evaluation(tmp_path / "e")
    model = replace(evaluation.config.model, digest=folder.weights_digest)
    config = replace(evaluation.config, model=model, precision=UNKNOWN_PRECISION)
    evaluation.write_config(config)
    with pytest.raises(ValueError, match="precision: got unknown, as of a server"):
        main(Config(evaluation=evaluation.path, model=folder.path))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_reordering_fault_of_the_network_widens_the_bound(
    folder: ModelFolder, precision: PrecisionName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that adds otherwise in batches of more than 250 rows is seen by the measurement."""
    network = Network(folder, precision=get_precision(precision), device=CPU)
    pairs = [
        sequences_of(r, (np.arange(8, 20, dtype=np.uint8),))[0]
        for r in toy_requests(3, mode="cot", max_new_tokens=24, segment=24)
    ]
    num_additions = count_additions(folder)
    before = measure_bound(network, pairs, num_additions=num_additions)
    prefill = network.prefill

    def faulty(*args: object, **named: object) -> torch.Tensor:
        logits = prefill(*args, **named)  # type: ignore[arg-type]
        return logits + 3.0 if len(logits) > 255 else logits

    monkeypatch.setattr(network, "prefill", faulty)
    after = measure_bound(network, pairs, num_additions=num_additions)
    assert before.measured < 1.0
    assert after.measured > 2.0
    assert after.worst_case.startswith("batches of 25")
