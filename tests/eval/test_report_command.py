"""Tests of the command that reproduces an evaluation, as shown in reports."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.model_format.precision import UNKNOWN_PRECISION
from eval.commands.report import Config, main
from eval.commands.text_run import TextOptions
from eval.engines.options import parse_engine_args
from eval.report.command import reproducing_command
from eval.results.records import ProtocolRecord, SamplingRecord
from eval.sampling.selection import SamplingConfig
from scripts.cli.main import parse
from solver.puzzles import ColumnNames
from tests.eval.evaluations import LENGTHS, write_evaluation


def test_commands_reproduce_evaluations(tmp_path: Path) -> None:
    config = write_evaluation(tmp_path / "a").config
    data = replace(config.data, name="test.csv")
    arguments: dict[str, Any] = {"stop": ["a b"], "name": "5"}
    session = replace(config.sessions[0], device="http://host/v1", engine_args=arguments)
    text = replace(
        config,
        mode="text",
        data=data,
        engine="api",
        precision=UNKNOWN_PRECISION,
        sampling=SamplingRecord(
            kind="buckets", count=5, seed=3, bucket_by="rating", check_unique=False
        ),
        protocol=ProtocolRecord(
            version=1,
            digest="",
            num_shots=2,
            form="plain",
            num_samples=4,
            temperature=0.5,
            top_p=0.9,
            seed=7,
            request_fields=arguments,
        ),
        sessions=(session,),
    )
    words = shlex.split(reproducing_command(text, out="e"))
    _, parsed = parse(("eval", "run"), words[3:])
    assert (parsed.model, parsed.data, parsed.engine) == ("model", ("test.csv",), "api")
    assert parsed.sampling == SamplingConfig(
        sample="buckets", count=5, seed=3, bucket_by="rating", check_unique=False
    )
    assert parsed.text == TextOptions(
        protocol="text",
        shots=2,
        samples=4,
        temperature=0.5,
        top_p=0.9,
        reply_seed=7,
        prompt_form="plain",
    )
    assert parse_engine_args(parsed.engine_args) == arguments
    assert parsed.server.base_url == "http://host/v1"
    assert (parsed.max_new_tokens, parsed.max_segment_tokens) == (config.caps.max_new_tokens, None)

    model = replace(config.model, facts={"mode": "cot"})
    arguments = {"gpu_memory_utilization": 0.5, "enforce_eager": True}
    session = replace(session, device="cuda:0", engine_args=arguments)
    data = replace(data, name="a.csv, b c.csv", puzzle_column="the grid", answer_column="-x")
    ids = replace(
        config, engine="vllm", data=data, model=model, keeps_tokens=True, sessions=(session,)
    )
    words = shlex.split(reproducing_command(ids, out="e"))
    _, parsed = parse(("eval", "run"), words[3:])
    assert (parsed.sampling.targets, parsed.mode, parsed.keep_tokens) == (LENGTHS, "scot", True)
    assert parsed.data == ("a.csv", "b c.csv")
    assert parsed.columns.names == ColumnNames(puzzle="the grid", answer="-x")
    assert parse_engine_args(parsed.engine_args) == arguments
    assert parsed.caps("scot") == config.caps
    assert parsed.text == TextOptions()


def test_the_command_names_the_model_and_not_its_label(tmp_path: Path) -> None:
    config = write_evaluation(tmp_path / "a", name="small").config
    session = replace(config.sessions[0], model="org/model-0.6B")
    words = shlex.split(reproducing_command(replace(config, sessions=(session,)), out="e"))
    _, parsed = parse(("eval", "run"), words[3:])
    assert (parsed.model, parsed.name) == ("org/model-0.6B", "small")
    same = replace(config, sessions=(replace(session, model="small"),))
    assert "--name" not in reproducing_command(same, out="e")


def test_imported_evaluations_have_no_command(tmp_path: Path) -> None:
    evaluation = write_evaluation(tmp_path / "a", engine="import")
    assert reproducing_command(evaluation.config, out="e") == ""
    main(Config(runs=(str(tmp_path / "a"),), out=tmp_path / "out"))
    assert "sudocot eval run" not in (tmp_path / "out" / "report.html").read_text()
