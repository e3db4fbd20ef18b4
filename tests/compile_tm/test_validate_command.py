"""Tests of the command `compile validate`."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import Executor, Future
from itertools import islice
from typing import Any, Literal

import numpy as np
import pytest

from compile_tm.commands import validate as validate_command
from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.settings import Conversion
from compile_tm.machines import random_runs
from compile_tm.machines.interpreter import Status, run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.random_runs import random_long_run
from compile_tm.machines.turing import Move, TuringMachine
from compile_tm.measure import validation
from data.runtime.ranges import check_ranges
from solver.jit import IS_JIT

SMALL = RandomMachineConfig(max_tapes=1, max_states=3, max_inputs=1, max_extra_symbols=0)


def test_validation_counts_every_pair(capsys: pytest.CaptureFixture[str]) -> None:
    if not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")
    config = validate_command.Config(pairs=30, workers=1, machines=SMALL, max_steps=50, min_steps=0)
    assert validate_command.main(config) == 0
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[0]) for line in lines]
    assert sum(counts[:5]) == counts[5] == 30
    assert counts[4] == 0
    config = validate_command.Config(
        pairs=5, workers=1, machines=SMALL, max_steps=50, min_steps=0, min_share=1.0
    )
    assert validate_command.main(config) == 1


def test_machines_run_for_at_least_the_minimum_number_of_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")
    config = validate_command.Config(
        pairs=3, workers=1, machines=SMALL, max_steps=40, max_extra_bits=0
    )
    assert validate_command.main(config) == 0
    lines = {
        line.split(maxsplit=1)[1]: line.split()[0] for line in capsys.readouterr().out.splitlines()
    }
    assert lines["correct"] == "3"
    steps = next(text for text in lines if text.startswith("steps"))
    assert int(steps.split("minimum ")[1].split(",")[0]) >= config.min_steps
    assert lines["pairs with a position block (CoT)"] == "3"
    with pytest.raises(ValueError, match="min_steps: got 12, allowed is at most max_steps, 5"):
        validate_command.Config(max_steps=5)


def test_random_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        run = random_long_run(np.random.default_rng(seed), min_steps=15, max_steps=100)
        assert run is not None
        assert 15 <= run.num_steps <= 100
        again = run_machine(run.machine, run.word, max_steps=100)
        assert again.status is Status.HALTED
        assert again.output == run.output is not None
    # With one state and two symbols, no halting machine runs for 40 steps.
    monkeypatch.setattr(random_runs, "_MAX_RESTARTS", 2)
    tiny = RandomMachineConfig(
        max_tapes=1, max_states=2, max_inputs=1, max_extra_symbols=0, max_word=0
    )
    rng = np.random.default_rng(0)
    assert random_long_run(rng, tiny, min_steps=40, max_steps=50) is None


@pytest.mark.parametrize("denoise", ["every", "heads", "ties"])
def test_validation_of_conversions(
    denoise: Literal["every", "heads", "ties"], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same pairs are skipped as with hardmax."""
    options: dict[str, Any] = {"pairs": 12, "workers": 1, "machines": SMALL, "max_steps": 50}
    options |= {"min_steps": 0, "act": "bf16"}
    runs: list[dict[str, Any]] = [{"conversion": ("denoise",), "att": "bf16", "denoise": denoise}]
    if denoise == "every":
        runs += [
            {"conversion": ("exact",)},
            {"conversion": ("denoise",), "att": "m4e5", "act": "m1e3"},
        ]
    for run_options in runs:
        config = validate_command.Config(**(options | run_options))
        assert validate_command.main(config) == 0
        counts = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
        assert sum(counts[:5]) == counts[5] == 12
        outcomes = [_hardmax_outcome(number) for number in range(12)]
        skipped = (validation.Outcome.NOT_HALTING, validation.Outcome.NO_OUTPUT)
        assert counts[1:3] == [outcomes.count(outcome) for outcome in skipped]
        assert counts[4] == 0


def _hardmax_outcome(number: int) -> validation.Outcome | None:
    """Why a pair is skipped."""
    rng = np.random.default_rng([0, number])
    machine = random_machine(rng, SMALL)
    drawn = run_machine(machine, random_word(rng, machine, max_length=SMALL.max_word), max_steps=50)
    if drawn.status is not Status.HALTED:
        return validation.Outcome.NOT_HALTING
    return validation.Outcome.NO_OUTPUT if drawn.output is None else None


def test_wrong_conversions_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A c far below the bound, and a format without the theorem's c."""
    options = {"pairs": 12, "workers": 1, "machines": SMALL, "max_steps": 50, "min_steps": 0}
    config = validate_command.Config(conversion=("denoise",), act="e5m2", **options)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(validation, "convert", lambda *_, **__: Conversion(c=1.0))
        assert validate_command.main(config) == 1
    assert "segment 1, position " in capsys.readouterr().out
    config = validate_command.Config(conversion=("exact",), act="m7e3", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^act: got m7e3, whose largest value is 15\.9"):
        validate_command.main(config)


def test_workers_are_the_cpus_that_were_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert validate_command.Config().workers == 8
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert validate_command.Config().workers == 3
    monkeypatch.delenv("SLURM_CPUS_PER_TASK")
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert validate_command.Config().workers == 10


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    if not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")
    results = [
        list(
            validation.validate(
                18, seed=3, machines=SMALL, max_steps=50, max_extra_bits=2, num_workers=workers
            )
        )
        for workers in (1, 2)
    ]
    assert results[0] == results[1]


def test_pairs_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of pairs may be large; chunks are computed here, when they are submitted."""
    num_submitted = 0

    class Pool(Executor):
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            nonlocal num_submitted
            num_submitted += 1
            future: Future[Any] = Future()
            future.set_result(fn(*args))
            return future

    monkeypatch.setattr(validation, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(validation, "check_pair", lambda number, **_: number)
    results = validation.validate(
        10**9, seed=0, machines=SMALL, max_steps=1, max_extra_bits=0, num_workers=2
    )
    numbers: list[Any] = list(islice(results, 100))
    assert numbers == list(range(100))
    assert num_submitted < 30


def test_wrong_machines_are_not_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler that confuses left and right, as far as this can be seen from its tokens."""
    if not IS_JIT:
        pytest.skip("the sparse runtime is slow without the JIT")

    def confused(machine: TuringMachine, *, mode: Mode, bits: int, **_: bool) -> CompiledMachine:
        turned: dict[Move, Move] = {"L": "R", "S": "S", "R": "L"}
        rules = tuple(
            rule._replace(moves=tuple(turned[move] for move in rule.moves))
            for rule in machine.rules
        )
        return compile_machine(dataclasses.replace(machine, rules=rules), mode=mode, bits=bits)

    monkeypatch.setattr(validation, "compile_machine", confused)
    config = validate_command.Config(pairs=30, workers=1, machines=SMALL, max_steps=50, min_steps=0)
    assert validate_command.main(config) == 1
    assert "segment 1, position " in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        {"pairs": 0},
        {"max_steps": 0},
        {"workers": 0},
        {"max_extra_bits": 3},
        {"act": "bf16"},
        {"att": "bf16", "conversion": ("hardmax", "exact")},
        {"conversion": ()},
        {"positions": ()},
        {"denoise": "ties", "conversion": ("exact",)},
        {"denoise": "ties", "conversion": ("denoise",), "positions": ("embedding", "rope")},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        check_ranges(validate_command.Config(**wrong))


@pytest.mark.parametrize(
    "options", [{}, {"conversion": ("denoise",), "act": "bf16", "att": "bf16"}], ids=str
)
def test_validation_without_positional_embeddings(
    capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    config = validate_command.Config(
        pairs=8,
        workers=1,
        machines=SMALL,
        max_steps=30,
        min_steps=0,
        max_extra_bits=0,
        positions=("rope",),
        **options,
    )
    assert validate_command.main(config) == 0
    counts = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert sum(counts[:5]) == counts[5] == 8
    assert counts[0] > 0
    assert counts[4] == 0


def test_several_forms_of_the_same_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each form compares the same tokens, and a failure names its form."""
    checked: list[validation.Form] = []
    compare = validation._compare_predicted

    def record(compiled: CompiledMachine, expected: Any, form: validation.Form) -> None:
        compare(compiled, expected, form)
        checked.append(form)

    monkeypatch.setattr(validation, "_compare_predicted", record)
    options: dict[str, Any] = {"pairs": 8, "workers": 1, "machines": SMALL, "max_steps": 30}
    options |= {"min_steps": 0, "max_extra_bits": 0, "act": "bf16"}
    tokens = []
    for conversion in (("exact",), ("exact", "denoise", "exact")):
        for positions in (("embedding",), ("embedding", "rope")):
            config = validate_command.Config(
                conversion=conversion,
                positions=positions,
                **options,
            )
            assert validate_command.main(config) == 0
            tokens.append(int(capsys.readouterr().out.splitlines()[6].split()[0]))
    assert tokens[0] > 0
    assert tokens == [tokens[0] * n for n in (1, 2, 2, 4)]
    assert len(set(checked)) == 4

    def fail(compiled: CompiledMachine, expected: Any, form: validation.Form) -> None:
        assert form.positions == "embedding", "an error"

    monkeypatch.setattr(validation, "_compare_predicted", fail)
    assert validate_command.main(config) == 1
    assert ": exact (rope), cot, r = " in capsys.readouterr().out
