"""Values of other types and ranges in our own JSON and YAML files: one line that names the file.

Real files, each with one value replaced, removed or added (`tests.mutations`).
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from compile_tm.constructions.compiled import CompiledDfa, compile_dfa
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


def own_case(folder: Path, name: str) -> Case:
    """A file of a data set, an evaluation or a model list."""
    match name:
        case "facts":
            facts = json.loads((MODELS_FOLDER / "4x4-scot" / FACTS_FILE).read_text())
            return json_case(folder / FACTS_FILE, facts, lambda path: read_facts(path.parent))
        case "catalog":
            catalog = json.loads((MODELS_FOLDER / CATALOG_FILE).read_text())
            return json_case(folder / CATALOG_FILE, catalog, lambda _: read_catalog(folder))
        case "manifest":
            path = folder / MANIFEST_NAME
            return json_case(path, MANIFEST, lambda _: read_manifest(folder))
        case "certificates":
            path = folder / CERTIFICATES_FILE
            return json_case(path, CERTIFICATES, lambda _: read_certificates(folder))
        case "recipe":
            return json_case(folder / "r.yaml", RECIPE, read_recipe)
        case "registers":
            path, board = folder / REGISTERS_FILE, get_board("4x4")
            return json_case(path, REGISTERS, lambda _: read_register_facts(folder, board))
    raise ValueError(name)


def machine_case(folder: Path, name: str) -> Case:
    """A machine: name of the example and suffix."""
    example, _, suffix = name.partition("-")
    machine = machine_to_data(EXAMPLES[example]())
    return json_case(folder / f"m.{suffix}", machine, read_machine)


def model_case(folder: Path, _: str) -> Case:
    shutil.copytree(MODELS_FOLDER / "4x4-scot", folder / "model")
    path = folder / "model" / "config.json"
    return json_case(path, json.loads(path.read_text()), lambda path: open_model(path.parent))


def stock_case(folder: Path, name: str) -> Case:
    """A file of a folder of a plain Llama."""
    compiled = compiled_parity()
    write_source(make_source(compiled, "llama"), folder)
    write_cases(choose_cases(compiled), folder)
    content = json.loads((folder / name).read_text())
    read = read_cases if name == SELF_TEST_FILE else read_stock_source
    return json_case(folder / name, content, lambda _: read(folder))


def compiled_case(folder: Path, name: str) -> Case:
    """The config of a folder of the compiled architecture, as we and as the evaluation read it."""
    own = folder / "own"
    export_model(compiled_parity(), own)
    path = own / "config.json"
    content = json.loads(path.read_text())
    if name == "compiled-network":
        return json_case(path, content, read_compiled_network)
    return json_case(path, content, lambda _: read_source(own, read_config(own)))


def checkpoint_case(folder: Path, name: str) -> Case:
    step = folder / "step-000000001"
    step.mkdir()
    marker = {"schema": 1, "files": {"config.json": {"num_bytes": 2, "sha256": "0"}}}
    return json_case(step / name, marker, find_checkpoint_fault)


def compiled_parity() -> CompiledDfa:
    parity = EXAMPLES["parity"]()
    assert isinstance(parity, Dfa)
    return compile_dfa(parity, bits=3)


def open_model(folder: Path) -> object:
    return read_network_config(read_json(folder / "config.json"), source=str(folder))


def read_compiled_network(path: Path) -> object:
    return read_compiled_config(read_json(path), source=str(path))


def find_checkpoint_fault(path: Path) -> None:
    raise ValueError(f"{path}: {find_fault(path.parent)}")


CASES: dict[str, Callable[[Path, str], Case]] = {
    **dict.fromkeys(
        ("facts", "catalog", "manifest", "certificates", "recipe", "registers"), own_case
    ),
    **dict.fromkeys(("sorting-json", "parity-json", "sorting-yaml"), machine_case),
    **dict.fromkeys((CONFIG_FILE, SAMPLE_FILE, RESULTS_FILE), evaluation_case),
    "model-config": model_case,
    **dict.fromkeys((COMPILED_FILE, MACHINE_FILE, SELF_TEST_FILE), stock_case),
    **dict.fromkeys(("compiled-config", "compiled-network"), compiled_case),
    MARKER: checkpoint_case,
}
"""Functions that write the file of a name to a folder."""


@pytest.mark.parametrize("name", CASES)
def test_no_value_of_a_file_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    case = CASES[name](tmp_path, name)
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
