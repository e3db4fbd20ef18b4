"""`sudocot compile dfa`: compile an automaton into a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from tyro.conf import OmitArgPrefixes, Positional

from compile_tm.commands.folders import ExportOptions, write_folder
from compile_tm.commands.machines import load_machine
from compile_tm.constructions.compiled import compile_dfa
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.regex import regex_dfa, regex_symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile an automaton or a regular expression into a Hugging Face model.

    The model reads `<bos>` and a word of fewer than 2^r symbols, and outputs `<true>` or `<false>`.
    Formats are bf16, fp16, fp32, e4m3, e5m2, or mXeY with X mantissa and Y exponent bits.

    Examples:
        sudocot compile dfa parity --bits 6 --out parity-model
        sudocot compile dfa --regex "(a|b)*abb" --bits 8 --out abb-model
        sudocot compile dfa parity --bits 6 --positions rope --attention denoise --out rope-model
    """

    machine: Positional[str | None] = None
    """An example's name, or a .json or .yaml file."""
    regex: str | None = None
    """Regular expression, instead of a machine: symbols, `|`, `*`, `+`, `?`, `.`, parentheses."""
    alphabet: str | None = None
    """Alphabet of --regex (default: the symbols that occur in it)."""
    bits: Annotated[int, Ge(1), Le(20)]
    """Number of position bits r; words have at most 2^r - 1 symbols."""
    out: Path
    """Folder to write; it must not exist."""
    export: OmitArgPrefixes[ExportOptions] = field(default_factory=ExportOptions)
    """Architecture and number formats."""
    words: tuple[str, ...] = ()
    """Words of the self-test in the folder (default: short and random words)."""

    def __post_init__(self) -> None:
        if (self.machine is None) == (self.regex is None):
            raise ValueError("machine: give either a machine or --regex")
        if self.alphabet is not None and self.regex is None:
            raise ValueError("alphabet: allowed with --regex only")


def main(config: Config) -> int:
    """Compile the automaton and write the folder."""
    compiled = compile_dfa(_automaton(config), bits=config.bits)
    write_folder(compiled, config.out, config.export, words=config.words)
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
