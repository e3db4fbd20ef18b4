"""Random machines with a minimum number of steps, for fuzzing.

Most random machines that halt do so within two steps, before the trace has a position block or a
second segment. Hill climbing makes them run longer: a random rule among those used by the run is
resampled, and the mutation is accepted if the machine still halts with an output, in at least as
many steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compile_tm.machines.interpreter import Run, Status, run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.turing import MOVES, Rule, TuringMachine

_MAX_RESTARTS = 50
_MAX_MUTATIONS = 200


def random_run(
    rng: np.random.Generator, config: RandomMachineConfig | None = None, *, max_steps: int
) -> Run:
    """Return the run of a random machine on a random input.

    The machine may not halt, or may have no output.
    """
    config = config or RandomMachineConfig()
    machine = random_machine(rng, config)
    word = random_word(rng, machine, max_length=config.max_word)
    return run_machine(machine, word, max_steps=max_steps)


def random_long_run(
    rng: np.random.Generator,
    config: RandomMachineConfig | None = None,
    *,
    min_steps: int,
    max_steps: int,
) -> Run | None:
    """Return a run of `min_steps` to `max_steps` steps that halts with an output.

    Args:
        rng: Random number generator.
        config: Sizes of the machine; mutations do not change them.
        min_steps: Minimum number of steps.
        max_steps: Maximum number of steps.

    Returns:
        The first such run, or None if there was none in 50 restarts of 200 mutations.
    """
    for _ in range(_MAX_RESTARTS):
        run = random_run(rng, config, max_steps=max_steps)
        if not _has_output(run):
            continue
        for _ in range(_MAX_MUTATIONS):
            if run.num_steps >= min_steps:
                return run
            mutated = run_machine(_mutate_used_rule(rng, run), run.word, max_steps=max_steps)
            if _has_output(mutated) and mutated.num_steps >= run.num_steps:
                run = mutated
    return None


def _has_output(run: Run) -> bool:
    return run.status is Status.HALTED and run.output is not None


def _mutate_used_rule(rng: np.random.Generator, run: Run) -> TuringMachine:
    """Return the machine with a random next state, writes and moves in a rule used by the run."""
    machine = run.machine
    # `random_machine` and this function keep the rules in the order of the table's rows.
    number = int(rng.choice(run.recorded_rows))
    rule = machine.rules[number]
    writes = rng.integers(len(machine.tape_alphabet), size=machine.num_tapes).tolist()
    moves = rng.integers(len(MOVES), size=machine.num_tapes).tolist()
    mutated = Rule(
        rule.state,
        rule.read,
        machine.states[int(rng.integers(len(machine.states)))],
        tuple(machine.tape_alphabet[symbol] for symbol in writes),
        tuple(MOVES[move] for move in moves),
    )
    rules = (*machine.rules[:number], mutated, *machine.rules[number + 1 :])
    return replace(machine, rules=rules)
