"""`sudocot compile tm`: a Turing machine as a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from compile_tm.commands.folders import Attention, write_folder
from compile_tm.commands.machines import load_turing_machine
from compile_tm.constructions.compiled import compile_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a Turing machine and write it as a Hugging Face model.

    The model reads `<inp>`, a word and `</inp>`, writes the machine's run step by step, and then
    the output between `<outp>` and `</outp>`.

    Examples:
        sudocot compile tm binary-increment --bits 8 --out increment-model
        sudocot compile tm sorting --mode scot --bits 8 --words cab abc --out sorting-model
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    mode: Literal["cot", "scot"] = "cot"
    """With or without summaries."""
    bits: int
    """r, even: sequences may have 2^r tokens; `compile estimate` tells sizes."""
    out: Path
    """Folder to write; it must not exist."""
    attention: Attention = "hardmax"
    """Hardmax, or softmax by the theorem on exact attention or on denoising, in bf16 or better."""
    words: tuple[str, ...] = ()
    """Words of the self-test in the folder; by default some on which the machine soon halts."""
    whole_vocabulary: bool = False
    """Keep run tokens that no rule leads to, as the paper does."""
    two_way: bool = False
    """Tapes are infinite to both sides; the machine is folded first."""


def main(config: Config) -> int:
    """Compile and write."""
    machine = load_turing_machine(config.machine, is_two_way=config.two_way)
    compiled = compile_machine(
        machine,
        mode=config.mode,
        bits=config.bits,
        reachable_only=not config.whole_vocabulary,
    )
    write_folder(compiled, config.out, attention=config.attention, words=config.words)
    return 0
