"""`sudocot compile dfa`: an automaton as a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from tyro.conf import Positional

from compile_tm.commands.folders import (
    ArchitectureName,
    Attention,
    DtypeName,
    check_export,
    write_folder,
)
from compile_tm.commands.machines import load_machine
from compile_tm.constructions.compiled import compile_dfa
from compile_tm.conversion.rope.blueprint import Positions
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.regex import regex_dfa, regex_symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile an automaton, or a regular expression, and write it as a Hugging Face model.

    The model reads `<bos>` and a word of fewer than 2^r symbols, and answers `<true>` or `<false>`.
    Formats are bf16, fp16, fp32, e4m3, e5m2, or mXeY with X mantissa and Y exponent bits.

    Examples:
        sudocot compile dfa parity --bits 6 --out parity-model
        sudocot compile dfa --regex "(a|b)*abb" --bits 8 --out abb-model
        sudocot compile dfa parity --bits 6 --positions rope --attention denoise --out rope-model
    """

    machine: Positional[str | None] = None
    """An example's name, or a .json or .yaml file."""
    regex: str | None = None
    """A regular expression in place of a machine, of symbols, `|`, `*`, `+`, `?`, `.`, brackets."""
    alphabet: str | None = None
    """Symbols, with --regex; by default those that occur in it."""
    bits: Annotated[int, Ge(1), Le(20)]
    """r: words may have up to 2^r - 1 symbols."""
    out: Path
    """Folder to write; it must not exist."""
    architecture: ArchitectureName | None = None
    """Class of the model: a plain Llama or GPT-NeoX, or our own, which needs its own code. By
    default llama, or compiled where an option is given that only it has."""
    dtype: DtypeName = "float32"
    """Format of the weights of a llama or gpt-neox; all weights of a llama are exact in both."""
    positions: Positions | None = None
    """Compiled architecture: a positional embedding (default), or none, with layers in front that
    extract positions by rotations, one bit a layer."""
    attention: Attention | None = None
    """Compiled architecture: hardmax (default), or softmax by the theorem on exact attention or on
    denoising."""
    act: str | None = None
    """Compiled architecture: format that softmax models round activations to, in float32; c is a
    member of it. By default none, c is a member of bf16, and the model may be loaded in bf16."""
    att: str | None = None
    """Compiled architecture: format of attention weights; not rounded by default."""
    words: tuple[str, ...] = ()
    """Words of the self-test in the folder; by default short and random ones."""

    def __post_init__(self) -> None:
        if (self.machine is None) == (self.regex is None):
            raise ValueError("machine: allowed is either a machine or --regex")
        if self.alphabet is not None and self.regex is None:
            raise ValueError("alphabet: allowed is to give it with --regex only")
        check_export(self)


def main(config: Config) -> int:
    """Compile and write."""
    compiled = compile_dfa(_automaton(config), bits=config.bits)
    write_folder(compiled, config.out, config, words=config.words)
    return 0


def _automaton(config: Config) -> Dfa:
    if config.regex is not None:
        alphabet = regex_symbols(config.regex) if config.alphabet is None else config.alphabet
        return regex_dfa(config.regex, alphabet=tuple(alphabet))
    assert config.machine is not None
    machine = load_machine(config.machine)
    if not isinstance(machine, Dfa):
        raise ValueError(f"machine: {config.machine!r} is a Turing machine; see compile tm")
    return machine
