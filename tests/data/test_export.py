"""Tests of the export: loading with `datasets` offline, the card, and atomicity."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
import yaml

from data import export
from data.builder.build import build
from data.builder.plan import BuildConfig
from data.card import ExportedPart, dataset_card
from data.commands import export as export_command
from data.export import export_datasets
from data.puzzle_sources.sources import GeneratorSource, open_files
from data.store import Manifest, TokenStore
from solver.boards import get_board
from tests.data.puzzle_files import folder_bytes, make_puzzles, write_csv


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cot` and `scot` of split train, and `cot_test`."""
    folder = tmp_path_factory.mktemp("built")
    puzzles = make_puzzles("4x4", 40)
    write_csv(folder / "sudoku-extreme" / "train.csv", puzzles[:30])
    write_csv(folder / "sudoku-extreme" / "test.csv", puzzles[30:])
    small = BuildConfig(shard_puzzles=7, segment_tokens=8)
    scot = replace(small, mode="scot")
    for name, config, split in (
        ("cot", small, "train"),
        ("scot", scot, "train"),
        ("cot_test", small, "test"),
    ):
        source = open_files(
            (str(folder / "sudoku-extreme"),), board=None, split=split, revision=None
        )
        build(source, folder / name, config=config)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    return tmp_path / "cache"


def front_matter(folder: Path) -> dict[str, Any]:
    _, text, _ = (folder / "README.md").read_text().split("---\n", 2)
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def test_datasets_loads_every_config_and_split(built: Path, tmp_path: Path, cache: Path) -> None:
    export_datasets([built / "scot", built / "cot_test", built / "cot"], tmp_path / "out")
    for name, config, split in (
        ("cot", "cot", "train"),
        ("scot", "scot", "train"),
        ("cot_test", "cot", "test"),
    ):
        store = TokenStore.open(built / name)
        loaded = datasets.load_dataset(
            str(tmp_path / "out"), config, split=split, cache_dir=str(cache)
        )
        assert loaded.features == datasets.load_from_disk(str(built / name)).features
        assert len(loaded) == len(store)
        assert loaded["input_ids"][:] == [store[k].tolist() for k in range(len(store))]
        assert loaded["puzzle_id"][:] == store.puzzle_ids.tolist()
        assert loaded["segment_index"][:] == store.segment_indices.tolist()


def test_card_describes_the_files(built: Path, tmp_path: Path) -> None:
    parts = export_datasets([built / "cot", built / "cot_test", built / "scot"], tmp_path / "out")
    head = front_matter(tmp_path / "out")
    assert [config["config_name"] for config in head["configs"]] == ["cot", "scot"]
    assert head["license"] == "unknown"
    assert head["size_categories"] == ["n<1K"]
    cot, scot = head["dataset_info"]
    assert cot["features"][0] == {"name": "input_ids", "list": "uint8"}
    assert [(s["name"], s["num_examples"]) for s in cot["splits"]] == [("test", 10), ("train", 30)]
    files = list((tmp_path / "out" / "scot").glob("*.parquet"))
    assert scot["download_size"] == sum(path.stat().st_size for path in files)
    assert scot["dataset_size"] == scot["splits"][0]["num_bytes"] > 0
    assert [(part.config, part.split) for part in parts] == [
        ("cot", "test"),
        ("cot", "train"),
        ("scot", "train"),
    ]
    text = (tmp_path / "out" / "README.md").read_text()
    assert "`train.csv` of `sudoku-extreme`" in text
    assert "states no license" in text
    assert text.isascii()
    for part in parts:
        tokens = f"{part.manifest.num_tokens:,} | {part.manifest.num_loss_tokens:,}"
        assert f"| `{part.config}` | `{part.split}` |" in text
        assert tokens in text
    table = re.search(r"(?m)(^\|.*\n)+", text)
    assert table is not None
    assert {line.count("|") for line in table[0].splitlines()} == {9}


def test_manifest_configuration_and_tokenizer_come_along(built: Path, tmp_path: Path) -> None:
    export_datasets([built / "scot"], tmp_path / "out")
    scot = tmp_path / "out" / "scot"
    for name in ("manifest.json", "build.json"):
        assert (scot / f"train-{name}").read_bytes() == (built / "scot" / name).read_bytes()
    assert json.loads((tmp_path / "out" / "tokenizer.json").read_text())["model"]["vocab"]
    assert (tmp_path / "out" / "tokenizer_config.json").is_file()


def test_files_hold_whole_shards_and_bounded_row_groups(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "ROW_GROUP_TOKENS", 200)
    store = TokenStore.open(built / "cot")
    tokens = [shard.num_tokens for shard in store.manifest.shards]
    export_datasets([built / "cot"], tmp_path / "out", file_tokens=tokens[0] + tokens[1])
    paths = sorted((tmp_path / "out" / "cot").glob("*.parquet"))
    assert [path.name for path in paths][:2] == [
        f"train-0000{k}-of-0000{len(paths)}.parquet" for k in (0, 1)
    ]
    assert pq.read_metadata(paths[0]).num_rows == 14
    sizes = [
        pq.read_metadata(path).row_group(k).num_rows
        for path in paths
        for k in range(pq.read_metadata(path).num_row_groups)
    ]
    assert max(sizes) <= 3
    assert sum(sizes) == len(store)


def test_bytes_do_not_depend_on_the_workers(built: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        out = tmp_path / f"w{workers}"
        export_datasets([built / "cot"], out, file_tokens=1, workers=workers)
    assert folder_bytes(tmp_path / "w1" / "cot") == folder_bytes(tmp_path / "w3" / "cot")
    one, three = (tmp_path / name / "README.md" for name in ("w1", "w3"))
    assert one.read_bytes() == three.read_bytes()


def test_16x16_keeps_wide_ids(tmp_path: Path, cache: Path) -> None:
    path = write_csv(tmp_path / "wide.csv", make_puzzles("16x16", 2, num_blanks=40))
    source = open_files((str(path),), board=None, split=None, revision=None)
    build(source, tmp_path / "cot", config=BuildConfig())
    export_datasets([tmp_path / "cot"], tmp_path / "out")
    loaded = datasets.load_dataset(str(tmp_path / "out"), "cot", cache_dir=str(cache))["train"]
    assert loaded.features["input_ids"].feature.dtype == "uint16"
    assert loaded[1]["input_ids"] == TokenStore.open(tmp_path / "cot")[1].tolist()
    assert "list of uint16" in (tmp_path / "out" / "README.md").read_text()


def test_damaged_shard_is_not_exported(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cot"
    folder.mkdir()
    for name, content in folder_bytes(built / "cot").items():
        (folder / name).write_bytes(content)
    shard = folder / TokenStore.open(folder).manifest.shards[1].name
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        export_datasets([folder], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["cot"]


def test_full_disk_leaves_nothing_and_keeps_the_old_export(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    export_datasets([built / "cot"], out)
    before = folder_bytes(out / "cot")
    with pytest.raises(FileExistsError, match="exists"):
        export_datasets([built / "scot"], out)

    def fail(*args: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", fail)
        with pytest.raises(OSError, match="No space left"):
            export_datasets([built / "scot"], out, rebuild=True)
    assert folder_bytes(out / "cot") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    export_datasets([built / "scot"], out, rebuild=True)
    assert not (out / "cot").exists()
    with pytest.raises(FileExistsError, match="contains files but"):
        export_datasets([built / "scot"], built / "cot", rebuild=True)


def test_a_folder_can_name_its_split(tmp_path: Path) -> None:
    puzzles = make_puzzles("4x4", 6)
    for name, rows in (("cot", puzzles[:4]), ("other", puzzles[4:]), ("a:b", puzzles[:1])):
        path = write_csv(tmp_path / f"{name}.csv", rows)
        source = open_files((str(path),), board=None, split=None, revision=None)
        build(source, tmp_path / name, config=BuildConfig())
    (tmp_path / "lists").mkdir()
    source = open_files((str(tmp_path / "lists"),), board=None, split="../cot", revision=None)
    build(source, tmp_path / "named", config=BuildConfig())
    build(source, tmp_path / "none", config=BuildConfig(max_cot_length=1))
    folders = [tmp_path / name for name in ("cot", "other:test", "a:b:more")]
    parts = export_datasets(folders, tmp_path / "out")
    counts = [(part.split, part.manifest.num_puzzles) for part in parts]
    assert counts == [("more", 1), ("test", 2), ("train", 4)]
    (part,) = export_datasets([tmp_path / "a:b"], tmp_path / "colon")
    assert (part.split, part.manifest.num_puzzles) == ("train", 1)
    for folder, error, message in (
        ("cot:my-test", ValueError, "split: got 'my-test', allowed are letters, digits and _"),
        ("cot:", ValueError, "split: got ''"),
        ("cot:all", ValueError, "split: got 'all'"),
        ("named", ValueError, r"split: got '\.\./cot', .*FOLDER:SPLIT sets another split"),
        ("none:test", ValueError, "none: a data set without puzzles"),
        ("missing:test", FileNotFoundError, "missing"),
    ):
        with pytest.raises(error, match=message):
            export_datasets([tmp_path / folder], tmp_path / "bad")


def test_data_sets_must_go_together(built: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"both are cot of split train; .* FOLDER:SPLIT sets"):
        export_datasets([built / "cot", built / "cot"], tmp_path / "out")
    source = GeneratorSource(
        board=get_board("6x6"), count=2, seed=0, extra_givens=0, cot_lengths=None, workers=1
    )
    build(source, tmp_path / "six", config=BuildConfig(mode="scot"))
    with pytest.raises(ValueError, match="allowed is one board"):
        export_datasets([built / "cot", tmp_path / "six"], tmp_path / "out")


def part_of(manifest: Manifest, **source: Any) -> ExportedPart:
    return ExportedPart(
        config=manifest.mode,
        split="train",
        manifest=replace(manifest, source=source),
        num_bytes=1,
        download_size=1,
    )


def test_license_question_depends_on_the_puzzles(built: Path) -> None:
    manifest = TokenStore.open(built / "cot").manifest
    files = [{"name": "my.txt", "sha256": "00"}]
    mine = part_of(manifest, kind="files", files=files)
    extreme = part_of(
        manifest, kind="files", files=files, dataset="sapientinc/sudoku-extreme", split="train"
    )
    made = part_of(manifest, kind="generator", count=3, seed=7, extra_givens=0)
    assert "whose license " in dataset_card([mine])
    assert "puzzles in `my.txt`" in dataset_card([mine])
    assert "states no license" in dataset_card([extreme])
    assert "no third-party material" in dataset_card([made])
    assert "generator, seed 7" in dataset_card([made])
    stated = dataset_card([extreme], license_id="cc-by-4.0")
    assert "license: cc-by-4.0" in stated
    assert "states no license" not in stated


@pytest.mark.parametrize(
    ("num_rows", "category"),
    [
        (0, "n<1K"),
        (999, "n<1K"),
        (1000, "1K<n<10K"),
        (26_968_686, "10M<n<100M"),
        (3 * 10**9, "1B<n<10B"),
    ],
)
def test_size_categories(built: Path, num_rows: int, category: str) -> None:
    manifest = replace(TokenStore.open(built / "cot").manifest, num_rows=num_rows)
    part = part_of(manifest, kind="files", files=[])
    assert f"- {category}\n" in dataset_card([part])


def test_command_imports_no_torch(built: Path, tmp_path: Path) -> None:
    # Some versions of transformers import torch with their tokenizers.
    code = (
        "import sys; from transformers import PreTrainedTokenizerFast; "
        "is_imported = 'torch' in sys.modules; "
        "from scripts.cli.main import main; code = main(sys.argv[1:]); "
        "assert ('torch' in sys.modules) == is_imported; sys.exit(code)"
    )
    argv = ["data", "export", str(built / "cot"), "--out", str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True
    )
    assert "cot train" in result.stdout


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="datasets: got none"):
        export_command.Config(datasets=(), out=Path("o"))
    for name in ("file_tokens", "workers"):
        with pytest.raises(ValueError, match=f"{name}: got 0"):
            export_command.Config(**{"datasets": (Path("a"),), "out": Path("o"), name: 0})  # type: ignore[arg-type]
