"""Mutation testing of selected modules: `python -m scripts.bench.mutation`, or mutation.sh.

A mutant is a module with one changed operator, comparison, constant, condition or statement. Its
tests run in a forked process that imports the mutant in place of the module; the mutant is killed
if a test fails. Survivors are printed; docs/mutation.md lists and explains those of a seed.

Forks share the imports of third-party libraries only, since project modules may import the mutant.
Kernels are run as plain Python, because compiling each mutant would take seconds. The limit of a
mutant is CPU time, so that other load on the machine does not count.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import tyro

ROOT = Path(__file__).parents[2]
TARGETS: dict[str, tuple[str, ...]] = {
    "solver/mrv/search_state.py": ("tests/solver/test_mrv.py",),
    "solver/mrv/kernel.py": ("tests/solver/test_mrv.py",),
    "solver/mrv/candidate_planes.py": ("tests/solver/test_counting.py",),
    "solver/mrv/board_state.py": ("tests/solver/test_search_planes.py",),
    "data/segments.py": ("tests/data/test_segments.py",),
    "training/batching/sampler.py": ("tests/training/test_sampler.py",),
    "eval/engines/puzzle_run.py": ("tests/eval/test_puzzle_run.py",),
    "compile_tm/program/gadgets.py": ("tests/compile_tm/test_gadgets.py",),
    "compile_tm/program/arithmetic.py": ("tests/compile_tm/test_gadgets.py",),
    "compile_tm/program/builder.py": ("tests/compile_tm/test_builder.py",),
    "compile_tm/program/conflicts.py": ("tests/compile_tm/test_builder.py",),
}
"""Mutated modules, with the test files that are run on their mutants."""
_LIBRARIES = ("numpy", "torch", "transformers", "accelerate", "safetensors.torch")
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_PYTEST_OPTIONS = (
    *("-x", "-q", "--timeout=0", "-p", "no:cacheprovider", "-p", "no:xdist"),
    # Plugins of libraries that are imported before the fork.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_MIN_CPU_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Run the tests of some modules on a sample of their mutants. The exit code is always 0."""

    modules: tyro.conf.Positional[tuple[str, ...]] = tuple(TARGETS)
    """Modules to mutate, as listed in TARGETS."""
    count: int = 10
    """Number of mutants of each module; all if there are fewer."""
    seed: int = 0
    """Seed of the sample."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed module."""

    line: int
    """Line of the change."""
    before: str
    """Source of the changed expression or statement."""
    after: str
    """Its replacement."""
    tree: ast.Module
    """The module."""


def main(config: Config) -> int:
    """Run the mutants, and print the survivors and a table."""
    os.chdir(ROOT)
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for library in _LIBRARIES:
        importlib.import_module(library)
    rows: list[tuple[str, Counter[str]]] = []
    for module in config.modules:
        mutants = sorted(_sample(module, config), key=lambda mutant: mutant.line)
        outcome, limit_s = _run(module, None, limit_s=600)
        if outcome != "survived":
            raise ValueError(f"{module}: its tests fail without a mutation")
        outcomes: Counter[str] = Counter()
        for mutant in mutants:
            outcome, _ = _run(module, mutant, limit_s=max(_MIN_CPU_S, round(3 * limit_s)))
            outcomes[outcome] += 1
            if outcome == "survived":
                print(f"{module}:{mutant.line}: `{mutant.before}` -> `{mutant.after}`", flush=True)
        rows.append((module, outcomes))
        print(_row(module, outcomes), file=sys.stderr, flush=True)
    total = sum((outcomes for _, outcomes in rows), start=Counter[str]())
    print(
        "", "| module | mutants | killed | timeout | survived |", "|---|---|---|---|---|", sep="\n"
    )
    print(*(_row(*row) for row in (*rows, ("total", total))), sep="\n")
    return 0


def _row(name: str, outcomes: Counter[str]) -> str:
    counts = (outcomes.total(), *(outcomes[key] for key in ("killed", "timeout", "survived")))
    return f"| {name} | {' | '.join(map(str, counts))} |"


def _sample(module: str, config: Config) -> list[Mutant]:
    mutants = list(mutants_of(ast.parse((ROOT / module).read_text(encoding="utf-8"))))
    # The stream depends on the module's name, so that a sample does not depend on other modules.
    rng = random.Random(f"{config.seed} {module}")  # noqa: S311 - a sample
    return rng.sample(mutants, min(config.count, len(mutants)))


def mutants_of(tree: ast.Module) -> Iterator[Mutant]:
    """Yield all mutants of a module."""
    for index, node in enumerate(_mutable_nodes(tree)):
        for change in _changes(node):
            mutated = copy.deepcopy(tree)
            target = list(_mutable_nodes(mutated))[index]
            before = ast.unparse(target)
            change(target)
            after = ast.unparse(target)
            if after != before:
                yield Mutant(node.lineno, _short(before), _short(after), mutated)


def _mutable_nodes(tree: ast.Module) -> Iterator[Any]:
    """Yield expressions and statements in functions, without annotations and messages."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _walk(statement)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Raise, ast.JoinedStr)):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """Yield functions that change a node in place."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _SWAPS:
        yield lambda node: setattr(node, "op", _SWAPS[type(node.op)]())
    elif isinstance(node, ast.Compare):
        yield lambda node: node.ops.__setitem__(0, _SWAPS[type(node.ops[0])]())
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield lambda node: setattr(node, "value", not node.value)
        elif isinstance(node.value, (int, float)):
            yield lambda node: setattr(node, "value", node.value + 1)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
        yield lambda node: setattr(node, "op", ast.UAdd())
    if isinstance(node, ast.AugAssign):
        yield lambda node: setattr(node, "value", ast.Constant(0))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield lambda node: setattr(node, "value", ast.Constant(None))


def _short(source: str) -> str:
    line, *more = source.splitlines()
    return line + " ..." * bool(more)


class _MutantFinder(importlib.abc.MetaPathFinder):
    """Imports a mutant under the name of its module."""

    def __init__(self, module: str, mutant: Mutant) -> None:
        self._path, self._name = ROOT / module, module.removesuffix(".py").replace("/", ".")
        self._code = compile(ast.fix_missing_locations(mutant.tree), self._path, "exec")

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - part of the interface
        target: ModuleType | None = None,  # noqa: ARG002 - part of the interface
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the mutant."""
        if fullname != self._name:
            return None
        return spec_from_file_location(
            fullname, self._path, loader=_MutantLoader(fullname, str(self._path), self._code)
        )


class _MutantLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, _name: str) -> CodeType:
        return self._code


def _run(module: str, mutant: Mutant | None, *, limit_s: int) -> tuple[str, float]:
    """Run the tests of a module in a forked process; return the outcome and the CPU time."""
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
        os.dup2(2, 1)  # the output of pytest is shown only without a mutation
        if mutant is not None:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            sys.meta_path.insert(0, _MutantFinder(module, mutant))
        code = 1
        try:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
                code = pytest.main([*_PYTEST_OPTIONS, *TARGETS[module]])
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - start.ru_utime - start.ru_stime
    if os.WIFSIGNALED(status) and cpu_s >= limit_s - 1:
        return "timeout", cpu_s
    return ("survived" if status == 0 else "killed"), cpu_s


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))
