"""`sudocot compile run`: compile a machine and let the transformer run it on a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from tyro.conf import Positional

from compile_tm.commands.machines import load_machine, load_turing_machine
from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import check_enough_bits, checked_run, min_bits
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.display import run_lines
from compile_tm.machines.interpreter import DEFAULT_MAX_STEPS
from compile_tm.program.program import Program
from compile_tm.runtime.generation import Decoder, generate_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a machine and generate from a word, token by token.

    The output is compared with the machine's own; exit code 1 tells that they differ. Automata
    answer with one token.

    Examples:
        sudocot compile run binary-addition 101+11
        sudocot compile run sorting cabba --mode scot --tokens
        sudocot compile run busy-beaver-4 "" --two-way --steps
        sudocot compile run parity 10110
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    word: Positional[str]
    """Input; symbols of several characters are separated by blanks."""
    mode: Literal["cot", "scot"] = "cot"
    """With or without summaries; automata have neither."""
    bits: int | None = None
    """r: sequences may have 2^r tokens; by default the smallest that is enough."""
    runtime: Literal["sparse", "dense"] = "sparse"
    """By look-ups, or by tensors."""
    two_way: bool = False
    """Tapes are infinite to both sides; the machine is folded first."""
    max_steps: int = DEFAULT_MAX_STEPS
    """Steps of the machine after which to give up."""
    tokens: bool = False
    """Show all tokens."""
    steps: bool = False
    """Show the machine's run."""


def main(config: Config) -> int:
    """Compile, generate, compare and print."""
    loaded = load_machine(config.machine)
    if isinstance(loaded, Dfa):
        return _run_dfa(loaded, config)
    machine = load_turing_machine(config.machine, is_two_way=config.two_way)
    run = checked_run(machine, config.word, max_steps=config.max_steps)
    bits = min_bits(run, mode=config.mode) if config.bits is None else config.bits
    check_enough_bits(run, mode=config.mode, bits=bits)
    compiled = compile_machine(machine, mode=config.mode, bits=bits, reachable_only=True)
    generation = generate_words(_decoder(config, compiled.program), compiled, [config.word])[0]
    console = Console(highlight=False, markup=False)
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


def _run_dfa(dfa: Dfa, config: Config) -> int:
    bits = dfa_min_bits(len(dfa.word(config.word))) if config.bits is None else config.bits
    compiled = compile_dfa(dfa, bits=bits)
    ((expected, prompt_length),) = compiled.expected_segments(config.word)
    decoder = _decoder(config, compiled.program)
    (ids,) = decoder.generate([expected[:prompt_length]], stop=compiled.stop_ids)
    console = Console(highlight=False, markup=False)
    if config.steps:
        console.print(" ".join(dfa.run(config.word)), soft_wrap=True)
    if config.tokens:
        console.print(" ".join(map(str, compiled.vocabulary.tokens(ids))), soft_wrap=True)
    answer, wanted = (
        compiled.vocabulary.token(int(part[prompt_length])) for part in (ids, expected)
    )
    console.print(f"output    {answer}")
    console.print(f"tokens    {len(ids):,}")
    console.print(f"machine   {'the same' if answer is wanted else 'differs'}")
    return 0 if answer is wanted else 1


def _decoder(config: Config, program: Program) -> Decoder:
    if config.runtime == "sparse":
        from compile_tm.runtime.sparse import SparseTransformer

        return SparseTransformer.from_program(program)
    from compile_tm.runtime.dense import HardmaxTransformer

    return HardmaxTransformer.from_program(program)
