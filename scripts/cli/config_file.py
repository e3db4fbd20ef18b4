"""Options from a file: `--config FILE` is expanded to command-line options.

The keys are option names (`_` and `-` are equivalent, nested mappings are joined with dots), so the
command's own parser checks names and values. Options on the command line override those of the
file, which override the defaults. The `config.json` of a run, which has its options under
`config`, is accepted as it is. Numbers and times keep their text: 4:00:00 is a time, not a number
in base 60.
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
        tri_states: Names of `bool | None` fields. Their options take a value; those of plain `bool`
            fields are `--name` and `--no-name`.

    Raises:
        ValueError: the option has no file or is repeated, or the file is not a mapping.
        OSError: the file cannot be read.
    """
    # Every word after a bare `--` is an argument, so the file's options are inserted before it.
    end = argv.index("--") if "--" in argv else len(argv)
    words, path = _take_config(argv[:end])
    if path is not None:
        given = {_option_name(word) for word in words if word.startswith("--")}
        for name, option in option_words(_read_mapping(path), tri_states=tri_states):
            if name not in given:
                words.extend(option)
    return [*words, *argv[end:]]


def tri_state_fields(config: Any) -> set[str]:
    """Return the names of the `bool | None` fields of a config and of its nested configs."""
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


def option_words(
    settings: Mapping[str, Any], prefix: str = "", *, tri_states: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each option and its words on a command line.

    Args:
        settings: Values by option name; nested mappings are joined with dots.
        prefix: Prefix of all names.
        tri_states: Names of `bool | None` fields, as in `expand_config_file`.
    """
    for key, value in settings.items():
        leaf = str(key).replace("_", "-")
        name = prefix + leaf
        if isinstance(value, dict):
            yield from option_words(value, f"{name}.", tri_states=tri_states)
        elif isinstance(value, bool) and leaf.replace("-", "_") not in tri_states:
            positive = leaf.removeprefix("no-")
            is_set = value == (positive == leaf)
            yield prefix + positive, [f"--{prefix}{'' if is_set else 'no-'}{positive}"]
        elif isinstance(value, list | tuple):
            values = list(map(str, value))
            has_dashes = any(text.startswith("-") for text in values)  # as those of --sbatch
            yield name, [f"--{name}={v}" for v in values] if has_dashes else [f"--{name}", *values]
        else:
            yield name, [f"--{name}={value}"]


def _option_name(word: str) -> str:
    prefix, dot, leaf = word[2:].split("=")[0].replace("_", "-").rpartition(".")
    return prefix + dot + leaf.removeprefix("no-")
