"""Values of other types and ranges in our own JSON and YAML files: one line that names the file.

Real files, each with one value replaced, removed or added (`tests.mutations`).
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from compile_tm.constructions.compiled import compile_dfa
from compile_tm.hf.export import export_model
from compile_tm.hf.folder import MACHINE_FILE
from compile_tm.hf.self_test import SELF_TEST_FILE, choose_cases, read_cases, write_cases
from compile_tm.hf.source import read_config, read_source
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import EXAMPLES
from compile_tm.machines.files import machine_to_data, read_machine
from compile_tm.stock.source import COMPILED_FILE, make_source, write_source
from compile_tm.stock.source import read_source as read_stock_source
from data.model_format.facts import FACTS_FILE, read_facts
from data.runtime.digests import DIGESTS_FILE
from data.runtime.documents import read_json
from data.runtime.schema import SchemaError, from_plain, read_record
from data.store import MANIFEST_NAME, Manifest, read_manifest
from eval.network.compiled.config import read_compiled_config
from eval.network.config import read_network_config
from eval.results.certificates import CERTIFICATES_FILE, read_certificates
from eval.results.folder import CONFIG_FILE, RESULTS_FILE, SAMPLE_FILE, EvaluationFolder
from eval.trace_page.register_facts import REGISTERS_FILE, read_register_facts
from scripts.launch.recipe import read_recipe
from scripts.models.catalog import CATALOG_FILE, MODELS_FOLDER, read_catalog
from solver.boards import get_board
from tests.eval.evaluations import write_evaluation
from tests.mutations import mutations
from training.checkpoints.checkpoint import MARKER, find_fault


@dataclass
class Case:
    """A file and what reads it."""

    path: Path
    content: Any
    read: Callable[[], object]

    def write(self, content: Any) -> None:
        text = json.dumps(content)
        if self.path.suffix == ".yaml":
            text = yaml.safe_dump(content)
        self.path.write_text(text + "\n")


def evaluation_case(folder: Path, name: str) -> Case:
    write_evaluation(folder, puzzles_per_length=1, kind="random")
    (folder / DIGESTS_FILE).unlink(missing_ok=True)
    path = folder / name
    lines = path.read_text().splitlines()
    # Of files of lines the first.
    content = json.loads(lines[0] if path.suffix == ".jsonl" else path.read_text())

    def read() -> object:
        opened = EvaluationFolder.open(folder)
        return opened.config.identity(), opened.rows

    return Case(path, content, read)


def json_case(path: Path, content: Any, read: Callable[[Path], object]) -> Case:
    return Case(path, content, lambda: read(path))


RECIPE = {
    "name": "first",
    "resources": {"time": "04:00:00", "gpus": 1, "sbatch": ["--account=me"], "setup": "x.sh"},
    "stages": {
        "data": {"run": "data build p.csv --out d", "shards": 8, "memory": "64G"},
        "train": {"run": ["train", "run", "--data", "d", "--out", "r"], "needs": ["data"]},
    },
}
MANIFEST = {
    "schema_version": 1,
    "board": "4x4",
    "mode": "cot",
    "vocabulary_digest": "0",
    "trace_rule": "r",
    "segment_tokens": None,
    "max_cot_length": 9,
    "seed": 0,
    "source": {},
    "funnel": {"read": 1},
    "num_rows": 1,
    "num_puzzles": 1,
    "num_tokens": 1,
    "num_loss_tokens": 1,
    "digest": "0",
    "shards": [{"name": "a", "num_rows": 1, "num_tokens": 1, "sha256": "0"}],
}
CERTIFICATES = {
    "schema": 1,
    "model_digest": "0",
    "precision": "fp32",
    "bound": {"measured": 1e-6, "worst_case": "batch", "derived": 1e-5, "num_logits": 9},
    "puzzles": [{"key": "0", "status": "certified", "least_margin": 0.5}],
}
REGISTERS = {
    "format": 1,
    "registers": [
        {"name": "first", "kind": "flag", "meaning": "m", "layers": [0, 1], "coordinates": [3]}
    ],
}


def cases(folder: Path) -> Iterator[tuple[str, Case]]:
    facts = json.loads((MODELS_FOLDER / "4x4-scot" / FACTS_FILE).read_text())
    catalog = json.loads((MODELS_FOLDER / CATALOG_FILE).read_text())
    yield "facts", json_case(folder / FACTS_FILE, facts, lambda path: read_facts(path.parent))
    yield "catalog", json_case(folder / CATALOG_FILE, catalog, lambda _: read_catalog(folder))
    yield "manifest", json_case(folder / MANIFEST_NAME, MANIFEST, lambda _: read_manifest(folder))
    path = folder / CERTIFICATES_FILE
    yield "certificates", json_case(path, CERTIFICATES, lambda _: read_certificates(folder))
    for suffix in ("json", "yaml"):
        for name in ("sorting", "parity")[: 2 if suffix == "json" else 1]:
            machine = machine_to_data(EXAMPLES[name]())
            yield f"{name}-{suffix}", json_case(folder / f"m.{suffix}", machine, read_machine)
    yield "recipe", json_case(folder / "r.yaml", RECIPE, read_recipe)
    path = folder / REGISTERS_FILE
    board = get_board("4x4")
    yield "registers", json_case(path, REGISTERS, lambda _: read_register_facts(folder, board))
    for name in (CONFIG_FILE, SAMPLE_FILE, RESULTS_FILE):
        yield name, evaluation_case(folder / name, name)

    yield from folder_cases(folder)


def folder_cases(folder: Path) -> Iterator[tuple[str, Case]]:
    """Files of model folders, compiled folders and checkpoints."""
    model = folder / "model"
    shutil.copytree(MODELS_FOLDER / "4x4-scot", model)
    content = json.loads((model / "config.json").read_text())
    yield "model-config", json_case(model / "config.json", content, lambda _: open_model(model))
    parity = EXAMPLES["parity"]()
    assert isinstance(parity, Dfa)
    compiled = compile_dfa(parity, bits=3)
    stock = folder / "stock"
    stock.mkdir()
    write_source(make_source(compiled, "llama"), stock)
    write_cases(choose_cases(compiled), stock)
    for name in (COMPILED_FILE, MACHINE_FILE):
        content = json.loads((stock / name).read_text())
        yield name, json_case(stock / name, content, lambda _: read_stock_source(stock))
    content = json.loads((stock / SELF_TEST_FILE).read_text())
    yield SELF_TEST_FILE, json_case(stock / SELF_TEST_FILE, content, lambda _: read_cases(stock))
    own = folder / "own"
    export_model(compiled, own)
    path = own / "config.json"
    content = json.loads(path.read_text())
    yield "compiled-config", json_case(path, content, lambda _: read_source(own, read_config(own)))
    yield "compiled-network", json_case(path, content, read_compiled_network)
    step = folder / "step-000000001"
    step.mkdir()
    marker = {"schema": 1, "files": {"config.json": {"num_bytes": 2, "sha256": "0"}}}
    yield MARKER, json_case(step / MARKER, marker, find_checkpoint_fault)


def open_model(folder: Path) -> object:
    return read_network_config(read_json(folder / "config.json"), source=str(folder))


def read_compiled_network(path: Path) -> object:
    return read_compiled_config(read_json(path), source=str(path))


def find_checkpoint_fault(path: Path) -> None:
    raise ValueError(f"{path}: {find_fault(path.parent)}")


NAMES = (
    *("facts", "catalog", "manifest", "certificates", "sorting-json", "parity-json"),
    *("sorting-yaml", "recipe", "registers", CONFIG_FILE, SAMPLE_FILE, RESULTS_FILE),
    *("model-config", COMPILED_FILE, MACHINE_FILE, SELF_TEST_FILE, "compiled-config"),
    *("compiled-network", MARKER),
)


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_file_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    case = dict(cases(tmp_path))[name]
    refused = tried = 0
    # PyYAML and transformers are slow.
    every = 4 if case.path.suffix == ".yaml" or name == "compiled-config" else 1
    for content in itertools.islice(mutations(case.content), None, None, every):
        try:
            case.write(content)
        except (yaml.YAMLError, UnicodeError):
            continue  # what YAML cannot hold
        tried += 1
        try:
            case.read()
        except (ValueError, OSError) as error:
            refused += 1
            message = str(error)
            assert message.startswith(str(case.path.parent)), (content, message)
            assert "\n" not in message
            assert len(message) < 1000, message
    # transformers accepts unknown fields, and many of its own with any value.
    assert refused > tried / (4 if name == "compiled-config" else 3), (refused, tried)


def test_messages_name_field_value_and_what_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST_NAME
    values = {name: value for name, value in MANIFEST.items() if name != "digest"}
    for change, told in (
        ({"num_rows": "1"}, "num_rows: got '1', allowed is a valid integer"),
        ({"num_rows": 10**30}, None),
        ({"shards": [{"name": "a"}]}, "shards[0].num_rows: missing"),
        ({"zz": 1}, "zz: unknown field"),
        ({"shards": 3}, "shards: got 3, allowed is a valid array"),
    ):
        path.write_text(json.dumps({**values, **change}))
        if told is None:
            read_record(path, Manifest)
            continue
        with pytest.raises(ValueError) as caught:
            read_record(path, Manifest)
        assert str(caught.value) == f"{path}: {told}"
    with pytest.raises(SchemaError, match=r"^got list, allowed is an object$"):
        from_plain(Manifest, [], schema=1)
    with pytest.raises(SchemaError, match=r"^schema: got True, allowed is 1$"):
        from_plain(Manifest, {"schema": True}, schema=1)
