"""Dataset card: `README.md` of an exported data set, with the front matter for the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml

from data.runtime.templates import markdown_environment
from data.store import Manifest, hub_features
from solver.boards import Board, get_board
from solver.vocabulary import Vocabulary

_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
_UNSTATED_LICENSE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPart:
    """One data set of an export: a split of a config."""

    config: str
    """`cot` or `scot`."""
    split: str
    """Name of the split."""
    manifest: Manifest
    """Manifest of the data set."""
    num_bytes: int
    """Size in memory as Arrow, in bytes."""
    download_size: int
    """Size of the Parquet files, in bytes."""

    @property
    def origin(self) -> str:
        """Description of the source of its puzzles."""
        source = self.manifest.source
        if source["kind"] == "generator":
            return f"puzzles made by sudocot's generator, seed {source['seed']}"
        names = ", ".join(f"`{item['name']}`" for item in source["files"])
        if "dataset" in source:
            return f"{names} of `{source['dataset']}`"
        return f"puzzles in {names}"


def dataset_card(
    parts: Sequence[ExportedPart],
    *,
    license_id: str | None = None,
    repository: str = "<this repository>",
) -> str:
    """Render the card.

    Args:
        parts: Data sets of one board, grouped by config.
        license_id: License identifier of the hub; None if unknown.
        repository: Repository name on the hub, for the loading example.
    """
    manifest = parts[0].manifest
    board = get_board(manifest.board)
    template = markdown_environment("data").get_template("templates/dataset_card.md.j2")
    return template.render(
        front_matter=yaml.safe_dump(_front_matter(board, parts, license_id), sort_keys=False),
        board=board,
        repository=repository,
        parts=parts,
        trace_rule=manifest.trace_rule,
        id_type=str(Vocabulary(board).dtype),
        vocabulary_size=Vocabulary(board).size,
        license_text=_license_text(parts, license_id),
    )


def _front_matter(
    board: Board, parts: Sequence[ExportedPart], license_id: str | None
) -> dict[str, Any]:
    num_rows = sum(part.manifest.num_rows for part in parts)
    configs, infos = [], []
    for config, group in groupby(parts, key=lambda part: part.config):
        of_config = list(group)
        files = [
            {"split": part.split, "path": f"{config}/{part.split}-*.parquet"} for part in of_config
        ]
        configs.append({"config_name": config, "data_files": files})
        splits = [
            {
                "name": part.split,
                "num_bytes": part.num_bytes,
                "num_examples": part.manifest.num_rows,
            }
            for part in of_config
        ]
        infos.append(
            {
                "config_name": config,
                "features": _yaml_features(board),
                "splits": splits,
                "download_size": sum(part.download_size for part in of_config),
                "dataset_size": sum(part.num_bytes for part in of_config),
            }
        )
    return {
        "license": license_id or _UNSTATED_LICENSE,
        "pretty_name": f"Sudoku solver traces {board.name}",
        "task_categories": ["text-generation"],
        "tags": ["sudoku", "chain-of-thought", "reasoning", "synthetic"],
        "size_categories": [_size_category(num_rows)],
        "configs": configs,
        "dataset_info": infos,
    }


def _yaml_features(board: Board) -> list[dict[str, str]]:
    """Columns in the front-matter format of the hub."""
    return [
        {"name": name, "list": feature["feature"]["dtype"]}
        if "feature" in feature
        else {"name": name, "dtype": feature["dtype"]}
        for name, feature in hub_features(board).items()
    ]


def _size_category(num_rows: int) -> str:
    """Size category of the hub, such as `10K<n<100K`."""
    exponent = max(0, len(str(num_rows)) - 3)
    if exponent == 0:
        return f"n<{_SIZES[0]}"
    return f"{_SIZES[exponent - 1]}<n<{_SIZES[exponent]}"


def _license_text(parts: Sequence[ExportedPart], license_id: str | None) -> str:
    if license_id is not None:
        return f"`{license_id}`, as stated by the author of this export."
    if all(part.manifest.source["kind"] == "generator" for part in parts):
        return (
            "Not stated. The puzzles were generated and contain no third-party material, so the "
            "author of the export may choose a license."
        )
    if any("sudoku-extreme" in part.manifest.source.get("dataset", "") for part in parts):
        return (
            "Not stated. The traces contain puzzles of `sapientinc/sudoku-extreme`, which states "
            "no license. Ask the authors of that data set before publishing or reusing this data, "
            "or share only the manifest, from which the same bytes can be built."
        )
    return (
        "Not stated. The traces contain the puzzles of the source named above, whose license "
        "applies to this data."
    )
