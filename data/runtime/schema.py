"""Strict parsing of JSON and YAML files into dataclasses: exact types, no unknown fields.

The schema consists of the fields of the dataclass, including the ranges in their types
(`data.runtime.ranges`) and the checks in `__post_init__`. Validation uses pydantic, which is
imported when the first file is read, so that it does not delay help texts.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from data.runtime.documents import load_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")
_VALUE = reprlib.Repr()
_VALUE.maxstring = _VALUE.maxother = 60


class SchemaError(ValueError):
    """A value violates the schema; the message is `FIELD: got X, allowed is Y`."""


def read_record(path: Path, kind: type[_Record], **constants: object) -> _Record:
    """Read a record from a JSON file.

    Args:
        path: The file.
        kind: A dataclass, or any other type supported by pydantic.
        constants: Additional fields and their required values, such as the version of the format;
            they are checked first.

    Raises:
        ValueError: The file is malformed; the message is `FILE: FIELD: got X, allowed is Y`.
        OSError: The file cannot be read.
    """
    return parse_record(kind, load_json(path), path=path, **constants)


def parse_record(
    kind: type[_Record], value: object, *, path: Path | str, **constants: object
) -> _Record:
    """Convert the JSON or YAML value of a file to a record; see `read_record`.

    Raises:
        ValueError: As for `read_record`.
    """
    try:
        return from_plain(kind, value, **constants)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None


def from_plain(kind: type[_Record], value: object, **constants: object) -> _Record:
    """Convert a JSON or YAML value to a record; see `read_record`.

    Raises:
        SchemaError: A field is missing, unknown, of another type or out of range.
    """
    from pydantic import ValidationError

    if constants:
        value = _without(constants, value)
    try:
        # In JSON mode, strict validation accepts arrays as tuples and strings as enumerations.
        content = json.dumps(value, default=str)
        key: Any = kind  # mypy takes types with parameters for unhashable
        adapter: TypeAdapter[_Record] = _adapter(key)
        return adapter.validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        raise SchemaError(_message(error, value)) from None
    except (TypeError, RecursionError):  # a key that is not a string, or nesting too deep
        raise SchemaError("expected a mapping with string keys, a list or a scalar") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _without(constants: Mapping[str, object], value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SchemaError(f"got {type(value).__name__}, allowed is an object")
    for name, allowed in constants.items():
        if name not in value:
            raise SchemaError(f"{name}: missing")
        if value[name] != allowed or type(value[name]) is not type(allowed):
            raise SchemaError(f"{name}: got {_VALUE.repr(value[name])}, allowed is {allowed}")
    return {name: item for name, item in value.items() if name not in constants}


def _message(error: Any, value: object) -> str:
    """Format the first error on one line."""
    first = error.errors(include_url=False)[0]
    kind: str = first["type"]
    text: str = first["msg"]
    field = _field(first["loc"], value, is_missing=kind == "missing")
    prefix = f"{field}: " if field else ""
    match kind:
        case "missing":
            return f"{prefix}missing"
        case "unexpected_keyword_argument":
            return f"{prefix}unknown field"
        case "value_error" | "assertion_error":  # raised by `__post_init__`
            return f"{prefix}{first['ctx']['error']}"
        case "json_invalid":
            return text.removeprefix("Invalid JSON: ")
    allowed = text.removeprefix("Input should be ")
    if kind == "dataclass_type":
        allowed = "an object"
    return f"{prefix}got {_VALUE.repr(first['input'])}, allowed is {allowed}"


def _field(location: tuple[int | str, ...], value: Any, *, is_missing: bool) -> str:
    """Format a location as `a.b[0]`, without the alternatives of unions."""
    name = ""
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple):
            name += f"[{step}]"
            value = value[step] if step < len(value) else None
        elif isinstance(value, dict) and (step in value or is_missing):
            name += f".{step}" if name else str(step)
            value = value.get(step)
    return name
