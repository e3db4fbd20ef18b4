"""Recipes: stages, each a `sudocot` command with its resources.

As YAML:

    name: first-run
    resources:            # defaults of all stages
      time: 04:00:00
      sbatch: [--account=me]
    stages:
      data:
        run: data build puzzles.csv --out data/cot
        shards: 8
      train:
        run: train run --data data/cot --out runs/cot
        needs: [data]
        nodes: 2
        gpus: 8
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import yaml
from annotated_types import Ge, Le
from tyro.conf import UseAppendAction

from data.runtime.documents import PlainLoader, load_yaml
from data.runtime.options import option_value
from data.runtime.ranges import Workers, check_ranges
from scripts.cli.commands import command_words, unknown_command

Words = tuple[str, ...]

BUILD: Words = ("data", "build")
TRAIN: Words = ("train", "run")
EVALUATE: Words = ("eval", "run")
MERGE_COMMANDS: dict[Words, Words] = {
    BUILD: ("data", "merge"),
    EVALUATE: ("eval", "merge"),
}
"""Commands with `--shard`, and the commands that merge their parts."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TIME = re.compile(r"[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """Resources of a stage."""

    shards: Annotated[int, Ge(1), Le(10_000)] = 1
    """Parts of `data build` or `eval run`, run as a job array; a further job merges them."""
    nodes: Annotated[int, Ge(1), Le(10_000)] = 1
    """Nodes of a training."""
    gpus: Annotated[int, Ge(0), Le(64)] = 0
    """GPUs per node; a training has one process per GPU."""
    processes: Workers = 1
    """Processes per node of a training without GPUs."""
    cpus: Annotated[int, Ge(1), Le(4096)] = 8
    """CPUs per node."""
    memory: str | None = None
    """Memory per node, such as 64G (default: the cluster's)."""
    time: str = "24:00:00"
    """Time limit in Slurm's format, such as 1-12:00:00; a job that reaches it is requeued."""
    signal_s: Annotated[int, Ge(1), Le(65_535)] = 300
    """Seconds before the time limit at which a job is signaled to save; Slurm may signal a minute
    earlier."""
    max_requeues: Annotated[int, Ge(0), Le(10**6)] = 100
    """Maximum number of requeues of a job."""
    sbatch: UseAppendAction[tuple[str, ...]] = ()
    """Further sbatch option of every job, such as --sbatch=--account=me; may be repeated."""
    gpu_sbatch: UseAppendAction[tuple[str, ...]] = ()
    """Further sbatch option of jobs with GPUs, such as --gpu-sbatch=--partition=gpu; may be
    repeated."""
    rendezvous_timeout_s: Annotated[int, Ge(1), Le(86_400)] = 600
    """Timeout of the rendezvous of a training's nodes in seconds, including the import of torch."""
    setup: Path | None = None
    """Shell file that every job sources first, for `module load` and similar commands."""
    online: bool = False
    """Allow network access; by default the hub and W&B are in offline mode."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.gpus and self.processes > 1:
            raise ValueError(
                f"processes: got {self.processes} with gpus, allowed is 1; "
                "a training has one process per GPU"
            )
        if not _TIME.fullmatch(self.time):
            raise ValueError(
                f"time: got {self.time!r}, allowed are such as 90 (minutes), 4:00:00, 1-12:00:00"
            )
        if 0 < self.time_s <= self.signal_s:
            # A job that is signaled at its start would only be requeued.
            raise ValueError(
                f"signal_s: got {self.signal_s}, allowed is less than the time limit of "
                f"{self.time_s} s"
            )
        if self.memory is not None and not re.fullmatch(r"[0-9]+[KMGT]?", self.memory):
            raise ValueError(f"memory: got {self.memory!r}, allowed are such as 64G")
        options = (*self.sbatch, *self.gpu_sbatch)
        bad = [word for word in options if not re.fullmatch(r"--[a-z-]+(=[^\"\\\n]*)?", word)]
        if bad:
            raise ValueError(f"sbatch: got {bad[0]!r}, allowed are --name and --name=value")

    @property
    def time_s(self) -> int:
        """Time limit in seconds; 0 for none."""
        days, has_days, rest = self.time.rpartition("-")
        parts = [int(part) for part in rest.split(":")]
        # Slurm's forms: M, M:S, H:M:S, and D-H, D-H:M, D-H:M:S.
        if not has_days and len(parts) < 3:
            parts.insert(0, 0)
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds

    @property
    def processes_per_node(self) -> int:
        """Processes of a training per node."""
        return self.gpus or self.processes


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A command with dependencies and resources."""

    name: str
    """Name, used in file names and in the `needs` of other stages."""
    words: Words
    """Command line after `sudocot`."""
    needs: tuple[str, ...] = ()
    """Stages that must succeed first."""
    resources: Resources = field(default_factory=Resources)
    """Resources."""

    def __post_init__(self) -> None:
        check_name("stage", self.name)
        command = self.command
        if self.resources.shards > 1 and command not in MERGE_COMMANDS:
            raise ValueError(
                f"shards: got {self.resources.shards} for {' '.join(command)}, allowed is 1; "
                f"commands with shards are {', '.join(map(' '.join, MERGE_COMMANDS))}"
            )
        if command != TRAIN and (self.resources.nodes > 1 or self.resources.processes > 1):
            raise ValueError(f"nodes, processes: {' '.join(command)} is one process, allowed is 1")
        reserved = ("--shard", "--resume") if command in MERGE_COMMANDS else ()
        given = [w for w in self.words if w.split("=")[0] in reserved]
        if given:
            raise ValueError(f"{self.name}: {given[0]} is set by the launcher and not allowed")

    @property
    def command(self) -> Words:
        """The subcommand.

        Raises:
            ValueError: If it is unknown.
        """
        found = command_words(self.words)
        if not found:
            raise ValueError(f"{self.name}: {unknown_command(self.words)}")
        return found

    def option(self, name: str) -> str:
        """Return the value of an option of the command line.

        Raises:
            ValueError: If it is not given or empty.
        """
        value = option_value(self.words, name)
        if not value:
            raise ValueError(f"{self.name}: {' '.join(self.command)} needs {name} to be launched")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Stages in topological order."""

    name: str
    """Name; jobs are called NAME.STAGE."""
    stages: tuple[Stage, ...]
    """Stages."""

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if not self.stages:
            raise ValueError("stages: got none, allowed is at least one")
        known: set[str] = set()
        for stage in self.stages:
            if stage.name in known:
                raise ValueError(f"stages: {stage.name} is repeated")
            unknown = [need for need in stage.needs if need not in known]
            if unknown:
                raise ValueError(
                    f"{stage.name}: needs {unknown[0]}, allowed are the stages before it: "
                    f"{', '.join(known) or 'none'}"
                )
            known.add(stage.name)


def check_name(what: str, name: str) -> None:
    """Check that a name is valid as a file name and a job name.

    Raises:
        ValueError: If it is not.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what}: got {name!r}, allowed are letters, digits, `.`, `_` and `-`")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a YAML file.

    Raises:
        ValueError: If the recipe is malformed; the message names file, stage and key.
        OSError: If it cannot be read.
    """
    content = load_yaml(path, loader=_Loader)
    try:
        entries = _mapping("recipe", content, allowed=("name", "resources", "stages"))
        stages = _mapping("stages", entries.get("stages", {}))
        base = _resources("resources", entries.get("resources", {}), base=Resources())
        return Recipe(
            name=str(entries.get("name", path.stem)),
            stages=tuple(_stage(str(name), value, base=base) for name, value in stages.items()),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


class _Loader(PlainLoader):
    """YAML loader in which 4:00:00 is a string, not a number in base 60."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int | str:
        return str(node.value) if ":" in node.value else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _stage(name: str, value: Any, *, base: Resources) -> Stage:
    fields = tuple(f.name for f in dataclasses.fields(Resources))
    entries = dict(_mapping(name, value, allowed=("run", "needs", *fields)))
    run, needs = entries.pop("run", ""), entries.pop("needs", [])
    try:
        words = shlex.split(run) if isinstance(run, str) else _texts("run", run)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return Stage(
        name=name,
        words=tuple(words),
        needs=(needs,) if isinstance(needs, str) else _texts(f"{name}: needs", needs),
        resources=_resources(name, entries, base=_applicable_resources(base, tuple(words))),
    )


def _texts(name: str, value: Any) -> Words:
    if not isinstance(value, list) or any(isinstance(item, list | dict) for item in value):
        raise ValueError(f"{name}: got {value!r}, allowed is text, or a list of words")
    return tuple(map(str, value))


def _applicable_resources(base: Resources, words: Words) -> Resources:
    """Return the default resources, without those that do not apply to a command."""
    if words[:2] == TRAIN:
        return dataclasses.replace(base, shards=1)
    shards = base.shards if words[:2] in MERGE_COMMANDS else 1
    return dataclasses.replace(base, nodes=1, processes=1, shards=shards)


def _resources(name: str, value: Any, *, base: Resources) -> Resources:
    types = get_type_hints(Resources)
    changes: dict[str, Any] = {}
    for key, given in _mapping(name, value, allowed=tuple(types)).items():
        if key in ("time", "memory") and type(given) is int:
            given = str(given)  # minutes and megabytes, as Slurm reads them
        if key in ("sbatch", "gpu_sbatch"):
            given = (given,) if isinstance(given, str) else _texts(f"{name}: {key}", given)
        elif type(given) is not (types[key] if types[key] in (int, bool) else str):
            wanted = "text" if types[key] not in (int, bool) else types[key].__name__
            raise ValueError(f"{name}: {key}: got {given!r}, allowed is {wanted}")
        changes[key] = Path(given) if key == "setup" else given
    try:
        return dataclasses.replace(base, **changes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _mapping(name: str, value: Any, *, allowed: Sequence[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name}: got {type(value).__name__}, allowed is a mapping")
    unknown = [key for key in value if allowed is not None and key not in allowed]
    if unknown:
        raise ValueError(f"{name}: got {unknown[0]!r}, allowed are {', '.join(allowed or ())}")
    return value
