"""`sudocot compile run`: run a compiled machine or a model folder on a word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from compile_tm.commands.folders import check_left_out, is_folder
from compile_tm.commands.machines import load_machine, load_turing_machine
from compile_tm.commands.sudoku import solve_puzzle
from compile_tm.constructions.compiled import (
    Compiled,
    CompiledDfa,
    CompiledMachine,
    compile_dfa,
    compile_machine,
)
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import check_enough_bits, checked_run, min_bits
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.display import run_lines
from compile_tm.machines.interpreter import DEFAULT_MAX_STEPS
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.program import Program
from compile_tm.runtime.generation import Decoder, generate_words
from compile_tm.sudoku.compiled import CompiledSudoku


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a machine, or open a model folder, and decode a word token by token.

    The output is compared with that of the machine; the exit code is 1 if they differ. Automata
    output one token.

    Examples:
        sudocot compile run binary-addition 101+11
        sudocot compile run sorting cabba --mode scot --tokens
        sudocot compile run busy-beaver-4 "" --two-way --steps
        sudocot compile run parity 10110
        sudocot compile run sorting-model cabba
    """

    machine: Positional[str]
    """An example's name, a .json or .yaml file, or a folder written by `compile`."""
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
    """Maximum number of steps of the machine."""
    tokens: bool = False
    """Print all tokens."""
    steps: bool = False
    """Print the run of the machine."""

    def __post_init__(self) -> None:
        if is_folder(self.machine):
            check_left_out(self, ("mode", "bits", "runtime", "two_way"))


def main(config: Config) -> int:
    """Decode, compare with the machine, and print."""
    compiled, decoder = _from_folder(config) if is_folder(config.machine) else _compile(config)
    if isinstance(compiled, CompiledDfa):
        return _run_dfa(compiled, decoder, config)
    if isinstance(compiled, CompiledSudoku):
        return solve_puzzle(
            Console(highlight=False, markup=False, emoji=False),
            compiled,
            decoder,
            compiled.board.parse(config.word),
        )
    assert isinstance(compiled, CompiledMachine)
    run = checked_run(compiled.machine, config.word, max_steps=config.max_steps)
    check_enough_bits(run, mode=compiled.mode, bits=compiled.bits)
    generation = generate_words(decoder, compiled, [config.word])[0]
    console = Console(highlight=False, markup=False, emoji=False)
    if config.steps:
        console.print("\n".join(run_lines(run)), soft_wrap=True)
    if config.tokens:
        for ids in generation.segments:
            console.print(" ".join(map(str, compiled.vocabulary.tokens(ids))), soft_wrap=True)
    output = "no output" if generation.output is None else " ".join(generation.output) or "(empty)"
    console.print(f"output    {output}")
    console.print(f"segments  {len(generation.segments):,}")
    console.print(f"tokens    {generation.num_tokens:,}")
    is_right = generation.output == run.output
    console.print(f"machine   {'the same' if is_right else 'differs'}, {run.num_steps:,} steps")
    return 0 if is_right else 1


def _run_dfa(compiled: CompiledDfa, decoder: Decoder, config: Config) -> int:
    ((expected, prompt_length),) = compiled.expected_segments(config.word)
    (ids,) = decoder.generate([expected[:prompt_length]], stop=compiled.stop_ids)
    console = Console(highlight=False, markup=False, emoji=False)
    if config.steps:
        console.print(" ".join(compiled.machine.run(config.word)), soft_wrap=True)
    if config.tokens:
        console.print(" ".join(map(str, compiled.vocabulary.tokens(ids))), soft_wrap=True)
    answer, wanted = (
        compiled.vocabulary.token(int(part[prompt_length])) for part in (ids, expected)
    )
    console.print(f"output    {answer}")
    console.print(f"tokens    {len(ids):,}")
    console.print(f"machine   {'the same' if answer is wanted else 'differs'}")
    return 0 if answer is wanted else 1


def _from_folder(config: Config) -> tuple[CompiledProgram, Decoder]:
    from compile_tm.hf.decoder import open_decoder

    decoder = open_decoder(Path(config.machine))
    return decoder.compiled, decoder


def _compile(config: Config) -> tuple[Compiled, Decoder]:
    loaded = load_machine(config.machine)
    compiled: Compiled
    if isinstance(loaded, Dfa):
        bits = dfa_min_bits(len(loaded.word(config.word))) if config.bits is None else config.bits
        compiled = compile_dfa(loaded, bits=bits)
        return compiled, _decoder(config, compiled.program)
    machine, mode = load_turing_machine(config.machine, is_two_way=config.two_way), config.mode
    run = checked_run(machine, config.word, max_steps=config.max_steps)
    bits = min_bits(run, mode=mode or "cot") if config.bits is None else config.bits
    check_enough_bits(run, mode=mode or "cot", bits=bits)
    compiled = compile_machine(machine, mode=mode or "cot", bits=bits, reachable_only=True)
    return compiled, _decoder(config, compiled.program)


def _decoder(config: Config, program: Program) -> Decoder:
    if config.runtime == "dense":
        from compile_tm.runtime.transformer import TorchTransformer

        return TorchTransformer(program)
    from compile_tm.runtime.sparse import SparseTransformer

    return SparseTransformer.from_program(program)
