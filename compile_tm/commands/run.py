"""`sudocot compile run`: run a compiled machine or a model folder on a word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from compile_tm.commands.folders import is_folder
from compile_tm.commands.machines import load_machine_and_words
from compile_tm.commands.sudoku import solve_puzzle
from compile_tm.constructions.compiled import (
    CompiledDfa,
    CompiledMachine,
    compile_dfa,
    compile_machine,
)
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import check_enough_bits, checked_run, min_bits
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.display import run_lines
from compile_tm.machines.interpreter import DEFAULT_MAX_STEPS, Run
from compile_tm.program.compiled import Decoder
from compile_tm.program.program import Program
from compile_tm.runtime.generation import generate_words
from compile_tm.sudoku.compiled import CompiledSudoku
from data.runtime.options import check_defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a machine, or open a model folder, and decode a word token by token.

    The output is compared with that of the machine; the exit code is 1 if they differ. Automata
    output one token. All tokens of a Sudoku solver are compared, up to the first segment that
    differs; the exit code is also 1 if the puzzle has no solution.

    Examples:
        sudocot compile run binary-addition 101+11
        sudocot compile run sorting cabba --mode scot --tokens
        sudocot compile run busy-beaver-4 "" --two-way --steps
        sudocot compile run parity 10110
        sudocot compile run sorting-model cabba
    """

    machine: Positional[str]
    """An example's name, a .json or .yaml file, or a folder written by `compile` (of a Sudoku
    solver, with architecture llama or gpt-neox)."""
    word: Positional[str]
    """Input word; symbols of several characters are separated by blanks. For a Sudoku folder, the
    cells row by row, `.` or `0` for blanks."""
    mode: Literal["cot", "scot"] | None = None
    """cot, or scot with summaries (default: cot); ignored for automata."""
    bits: Annotated[int, Ge(1), Le(40)] | None = None
    """Number of position bits r; sequences have at most 2^r tokens (default: the smallest
    sufficient r)."""
    runtime: Literal["sparse", "dense"] | None = None
    """Runtime: sparse table lookups (default), or dense tensors."""
    two_way: bool = False
    """The tapes are two-way infinite; they are folded to one-way tapes."""
    max_steps: Annotated[int, Ge(1), Le(10**12)] = DEFAULT_MAX_STEPS
    """Maximum number of steps of a Turing machine; ignored for automata."""
    tokens: bool = False
    """Print all tokens."""
    steps: bool = False
    """Print the run of the machine; not allowed with a Sudoku solver."""

    def __post_init__(self) -> None:
        if is_folder(self.machine):
            check_defaults(
                self, ("mode", "bits", "runtime", "two_way"), where="with a model folder"
            )


def main(config: Config) -> int:
    """Decode, compare with the machine, and print."""
    console = Console(highlight=False, markup=False, emoji=False)
    if is_folder(config.machine):
        return _run_folder(console, config)
    machine, (word,) = load_machine_and_words(
        config.machine, [config.word], is_two_way=config.two_way
    )
    if isinstance(machine, Dfa):
        bits = dfa_min_bits(len(word)) if config.bits is None else config.bits
        automaton = compile_dfa(machine, bits=bits)
        return _run_dfa(console, automaton, _decoder(config, automaton.program), config)
    mode = config.mode or "cot"
    run = checked_run(machine, word, max_steps=config.max_steps)
    if config.bits is None:
        bits = min_bits(run, mode=mode)
    else:
        bits = config.bits
        check_enough_bits(run, mode=mode, bits=bits)
    compiled = compile_machine(machine, mode=mode, bits=bits, reachable_only=True)
    return _run_machine(console, compiled, _decoder(config, compiled.program), run, config)


def _run_folder(console: Console, config: Config) -> int:
    from compile_tm.hf.decoder import open_decoder

    decoder = open_decoder(Path(config.machine))
    compiled = decoder.compiled
    if isinstance(compiled, CompiledDfa):
        return _run_dfa(console, compiled, decoder, config)
    if isinstance(compiled, CompiledSudoku):
        if config.steps:
            raise ValueError("steps: not allowed with a Sudoku solver")
        givens = compiled.board.parse(config.word)
        return solve_puzzle(console, compiled, givens, model=decoder, prints_tokens=config.tokens)
    assert isinstance(compiled, CompiledMachine)
    run = checked_run(compiled.machine, config.word, max_steps=config.max_steps)
    check_enough_bits(run, mode=compiled.mode, bits=compiled.bits)
    return _run_machine(console, compiled, decoder, run, config)


def _run_machine(
    console: Console, compiled: CompiledMachine, decoder: Decoder, run: Run, config: Config
) -> int:
    generation = generate_words(decoder, compiled, [run.word])[0]
    if config.steps:
        console.print("\n".join(run_lines(run)), soft_wrap=True)
    if config.tokens:
        for ids in generation.segments:
            console.print(" ".join(map(str, compiled.vocabulary.tokens(ids))), soft_wrap=True)
    output = "no output" if generation.output is None else " ".join(generation.output) or "(empty)"
    console.print(f"output    {output}", soft_wrap=True)
    console.print(f"segments  {len(generation.segments):,}")
    console.print(f"tokens    {generation.num_tokens:,}")
    is_right = generation.output == run.output
    console.print(f"machine   {'the same' if is_right else 'differs'}, {run.num_steps:,} steps")
    return 0 if is_right else 1


def _run_dfa(console: Console, compiled: CompiledDfa, decoder: Decoder, config: Config) -> int:
    ((expected_ids, prompt_length),) = compiled.expected_segments(config.word)
    (ids,) = decoder.generate([expected_ids[:prompt_length]], stop=compiled.stop_ids)
    if config.steps:
        console.print(" ".join(compiled.machine.run(config.word)), soft_wrap=True)
    if config.tokens:
        console.print(" ".join(map(str, compiled.vocabulary.tokens(ids))), soft_wrap=True)
    answer, expected = (
        compiled.vocabulary.token(int(part[prompt_length])) for part in (ids, expected_ids)
    )
    console.print(f"output    {answer}")
    console.print(f"tokens    {len(ids):,}")
    console.print(f"machine   {'the same' if answer is expected else 'differs'}")
    return 0 if answer is expected else 1


def _decoder(config: Config, program: Program) -> Decoder:
    if config.runtime == "dense":
        from compile_tm.runtime.transformer import TorchTransformer

        return TorchTransformer(program)
    from compile_tm.runtime.sparse import SparseTransformer

    return SparseTransformer.from_program(program)
