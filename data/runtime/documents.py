"""Reading of untrusted JSON and YAML, with limits on size, depth and aliases, and unique keys."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

MAX_DOCUMENT_BYTES = 1 << 28
"""Maximum size of a JSON or YAML file in bytes."""


class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # yaml comes without types
    """YAML loader with unique keys, and without aliases.

    Aliases can expand to more values than fit in memory.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node, unless it is an alias."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping, unless a key is repeated."""
        where = f"the mapping in line {node.start_mark.line + 1}"
        _check_unique_keys((key.value for key, _ in node.value), where=where)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _check_unique_keys(keys: Iterable[Any], *, where: str) -> None:
    """Check that no key is repeated; parsers keep the last value."""
    repeated = [key for key, count in Counter(map(str, keys)).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]} is repeated in {where}")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_unique_keys((key for key, _ in pairs), where="an object")
    return dict(pairs)


def read_document(path: Path, *, max_bytes: int | None = None) -> str:
    """Read a text file of limited size.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is too large or not UTF-8.
    """
    size = path.stat().st_size
    limit = MAX_DOCUMENT_BYTES if max_bytes is None else max_bytes
    if size > limit:
        raise ValueError(f"{path}: got {size} bytes, allowed are {limit}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def load_json(path: Path, *, max_bytes: int | None = None) -> Any:
    """Read a JSON file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is malformed; the message has file, line and column.
    """
    text = read_document(path, max_bytes=max_bytes)
    with _parse_errors(path):
        return json.loads(text, object_pairs_hook=_unique_object)


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is malformed or not an object; the message has file, line and column.
    """
    content = load_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: got {type(content).__name__}, allowed is an object")
    return content


def load_yaml(
    path: Path, *, loader: type[PlainLoader] = PlainLoader, max_bytes: int | None = None
) -> Any:
    """Read a YAML file; JSON is YAML too.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is malformed or has aliases; the message has file, line and column.
    """
    text = read_document(path, max_bytes=max_bytes)
    with _parse_errors(path):
        return yaml.load(text, Loader=loader)  # noqa: S506 - safe


@contextlib.contextmanager
def _parse_errors(path: Path) -> Iterator[None]:
    """Convert parse errors to a `ValueError` that names the file."""
    try:
        yield
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: brackets nested too deep") from None
