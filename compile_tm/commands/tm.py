"""`sudocot compile tm`: a Turing machine as a Hugging Face model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from tyro.conf import Positional

from compile_tm.commands.folders import (
    ArchitectureName,
    Attention,
    DtypeName,
    check_export,
    write_folder,
)
from compile_tm.commands.machines import load_turing_machine
from compile_tm.constructions.compiled import compile_machine
from compile_tm.conversion.rope.blueprint import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compile a Turing machine and write it as a Hugging Face model.

    The model reads `<inp>`, a word and `</inp>`, writes the machine's run step by step, and then
    the output between `<outp>` and `</outp>`. Formats are bf16, fp16, fp32, e4m3, e5m2, or mXeY,
    with X mantissa and Y exponent bits.

    Examples:
        sudocot compile tm binary-increment --bits 8 --out increment-model
        sudocot compile tm sorting --mode scot --bits 8 --words cab abc --out sorting-model
        sudocot compile tm sorting --bits 8 --positions rope --out rope-sorting-model
        sudocot compile tm sorting --bits 8 --attention denoise --act m1e4 --out narrow-model
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    mode: Literal["cot", "scot"] = "cot"
    """With or without summaries."""
    bits: Annotated[int, Ge(2), Le(20)]
    """r, even: sequences may have 2^r tokens; `compile estimate` tells sizes."""
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
    """Words of the self-test in the folder; by default some on which the machine soon halts."""
    whole_vocabulary: bool = False
    """Keep run tokens that no rule leads to, as the paper does."""
    two_way: bool = False
    """Tapes are infinite to both sides; the machine is folded first."""

    def __post_init__(self) -> None:
        check_export(self)


def main(config: Config) -> int:
    """Compile and write."""
    machine = load_turing_machine(config.machine, is_two_way=config.two_way)
    compiled = compile_machine(
        machine,
        mode=config.mode,
        bits=config.bits,
        reachable_only=not config.whole_vocabulary,
    )
    write_folder(compiled, config.out, config, words=config.words)
    return 0
