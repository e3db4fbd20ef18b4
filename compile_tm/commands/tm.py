"""`sudocot compile tm`: compile a Turing machine into a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from tyro.conf import OmitArgPrefixes, Positional

from compile_tm.commands.folders import ExportOptions, write_folder
from compile_tm.commands.machines import load_machine_and_words
from compile_tm.constructions.compiled import compile_machine
from compile_tm.machines.dfa import Dfa


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a Turing machine into a Hugging Face model.

    The model reads `<inp>`, a word and `</inp>`, and generates the run of the machine step by step,
    followed by the output between `<outp>` and `</outp>`. Formats are bf16, fp16, fp32, e4m3, e5m2,
    or mXeY, with X mantissa and Y exponent bits.

    Examples:
        sudocot compile tm binary-increment --bits 8 --out increment-model
        sudocot compile tm sorting --mode scot --bits 8 --words cab abc --out sorting-model
        sudocot compile tm sorting --bits 8 --positions rope --out rope-sorting-model
        sudocot compile tm sorting --bits 8 --attention denoise --act m1e4 --out narrow-model
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    mode: Literal["cot", "scot"] = "cot"
    """cot, or scot with summaries."""
    bits: Annotated[int, Ge(2), Le(20)]
    """Number of position bits r, even; sequences have at most 2^r tokens."""
    out: Path
    """Folder to write; it must not exist."""
    export: OmitArgPrefixes[ExportOptions] = field(default_factory=ExportOptions)
    """Architecture and number formats."""
    words: tuple[str, ...] = ()
    """Words of the self-test in the folder (default: words on which the machine halts early)."""
    whole_vocabulary: bool = False
    """Keep unreachable run tokens, as in the paper."""
    two_way: bool = False
    """The tapes are two-way infinite; they are folded to one-way tapes."""


def main(config: Config) -> int:
    """Compile the machine and write the folder."""
    machine, words = load_machine_and_words(config.machine, config.words, is_two_way=config.two_way)
    if isinstance(machine, Dfa):
        raise ValueError(f"machine: {config.machine!r} is an automaton; see compile dfa")
    compiled = compile_machine(
        machine,
        mode=config.mode,
        bits=config.bits,
        reachable_only=not config.whole_vocabulary,
    )
    write_folder(compiled, config.out, config.export, words=words)
    return 0
