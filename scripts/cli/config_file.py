"""Options from a file: `--config FILE` becomes the words that the user would have typed.

The keys are option names (`_` and `-` mean the same, nested mappings join with dots), so the
command's own parser checks names and values. An option that the command line gives is left out of
the file's, which makes the precedence command line, file, default. The `config.json` of a run holds
its options under `config`; it can be used as it is. Numbers and times stay the text that they are
in the file: 4:00:00 is a time, and no number in base 60.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

Value = str | bool | None | list["Value"] | dict[str, "Value"]


def expand_config_file(argv: Sequence[str], *, tri_states: Collection[str] = ()) -> list[str]:
    """Replace `--config FILE` (or `--config=FILE`) by the options of the file.

    Args:
        argv: Options and arguments of one command.
        tri_states: Fields that are True, False or None: options with a value, where a field that
            is True or False is a pair of options without.

    Raises:
        ValueError: the option lacks its file or comes twice, or the file is no mapping.
        OSError: the file cannot be read.
    """
    # Behind a bare `--` every word is an argument, so the file's options go before it.
    end = argv.index("--") if "--" in argv else len(argv)
    words, path = _take_config(argv[:end])
    if path is not None:
        given = {_option_name(word) for word in words if word.startswith("--")}
        for name, option in _options(_read_mapping(path), tri_states=tri_states):
            if name not in given:
                words.extend(option)
    return [*words, *argv[end:]]


def tri_state_fields(config: Any) -> set[str]:
    """Names of the fields of a config, and of the configs within it, that are `bool | None`."""
    names = set()
    for name, kind in get_type_hints(config).items():
        parts = get_args(kind)
        if bool in parts and type(None) in parts:
            names.add(name)
        for part in (kind, *parts):
            if dataclasses.is_dataclass(part):
                names |= tri_state_fields(part)
    return names


def _take_config(argv: Sequence[str]) -> tuple[list[str], Path | None]:
    kept: list[str] = []
    paths: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--config":
            paths.append(next(words, ""))
        elif word.startswith("--config="):
            paths.append(word.removeprefix("--config="))
        else:
            kept.append(word)
    if len(paths) > 1 or "" in paths:
        raise ValueError(f"--config: got {' '.join(paths) or 'no file'}, allowed is one file")
    return kept, Path(paths[0]) if paths else None


def _read_mapping(path: Path) -> dict[str, Value]:
    from data.runtime.documents import PlainLoader, load_yaml

    class Loader(PlainLoader):
        pass

    for kind in ("int", "float", "timestamp"):
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_yaml_str)
    settings = load_yaml(path, loader=Loader)
    if isinstance(settings, dict) and isinstance(settings.get("config"), dict):
        settings = settings["config"]
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: got {type(settings).__name__}, allowed is a mapping of options")
    return settings


def _options(
    settings: Mapping[str, Value], prefix: str = "", *, tri_states: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each option's name and the words that set it."""
    for key, value in settings.items():
        leaf = str(key).replace("_", "-")
        name = prefix + leaf
        if isinstance(value, dict):
            yield from _options(value, f"{name}.", tri_states=tri_states)
        elif isinstance(value, bool) and leaf.replace("-", "_") not in tri_states:
            yield name, [f"--{name}" if value else f"--{prefix}no-{leaf}"]
        elif isinstance(value, list):
            yield name, [f"--{name}", *map(str, value)]
        else:
            yield name, [f"--{name}={value}"]


def _option_name(word: str) -> str:
    prefix, dot, leaf = word[2:].split("=")[0].replace("_", "-").rpartition(".")
    return prefix + dot + leaf.removeprefix("no-")
