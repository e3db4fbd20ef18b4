"""The paper's "Concrete Instantiation": limits of the theorems for a model of GPT-3's size."""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.constructions.sequences import MAX_BITS, MIN_BITS
from compile_tm.constructions.sizes import MachineNumbers, tm_dimensions
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.formats.floats import BF16
from compile_tm.measure.report.theorems import (
    bits_for,
    denoised_sizes,
    is_enough,
    limit_for,
    log2_context_limit,
)
from compile_tm.program.program import Sizes

MODES: tuple[Mode, ...] = ("cot", "scot")
SMALL = MachineNumbers(num_tapes=1, num_states=2, num_symbols=2, num_inputs=1)
"""A machine so small that it does not limit any dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Dimensions of a model."""

    L: int
    """Layers."""
    H: int
    """Heads per layer."""
    d: int
    """Width."""
    d_h: int
    """Width of a head."""
    d_ff: int
    """Hidden neurons."""

    def exceeded_by(self, sizes: Sizes) -> tuple[str, ...]:
        """Return the names of the dimensions that a construction exceeds."""
        needed = {
            "L": sizes.L,
            "H": sizes.H,
            "d": sizes.d,
            "d_h": max(sizes.d_k, sizes.d_v),
            "d_ff": sizes.d_ff,
        }
        return tuple(name for name, value in needed.items() if value > getattr(self, name))


GPT3 = Budget(L=96, H=96, d=12288, d_h=128, d_ff=4 * 12288)


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of the paper, and the recomputed one."""

    what: str
    paper: str
    ours: str
    agrees: bool


def largest_bits(budget: Budget, *, mode: Mode, dimension: str, is_denoised: bool = False) -> int:
    """Return the largest even r whose construction fits a dimension of a budget; 0 if none."""
    best = 0
    for bits in range(MIN_BITS[mode], 2 * MAX_BITS, 2):
        sizes = tm_dimensions(SMALL, mode=mode, bits=bits)
        sizes = denoised_sizes(sizes) if is_denoised else sizes
        if dimension not in budget.exceeded_by(sizes):
            best = bits
    return best


def largest_num_states(
    budget: Budget, *, mode: Mode, bits: int, num_tapes: int, num_symbols: int
) -> int:
    """Return the largest number of states that fits a budget."""
    num_states = 0
    while True:
        numbers = MachineNumbers(
            num_tapes=num_tapes,
            num_states=num_states + 1,
            num_symbols=num_symbols,
            num_inputs=num_symbols - 1,
        )
        if budget.exceeded_by(tm_dimensions(numbers, mode=mode, bits=bits)):
            return num_states
        num_states += 1


def gpt3_claims() -> list[Claim]:
    """Return every number of the paper's section, recomputed for CoT and SCoT."""
    by_depth, by_head, denoised = (
        {
            mode: largest_bits(GPT3, mode=mode, dimension=dimension, is_denoised=is_denoised)
            for mode in MODES
        }
        for dimension, is_denoised in (("L", False), ("d_h", False), ("L", True))
    )
    states = {
        mode: largest_num_states(GPT3, mode=mode, bits=32, num_tapes=3, num_symbols=10)
        for mode in MODES
    }
    limits = {mode: limit_for(mode, 32) for mode in MODES}
    small_limits = {mode: limit_for(mode, 16) for mode in MODES}
    as_sizes = Sizes(
        L=GPT3.L, H=GPT3.H, d_k=GPT3.d_h, d_v=GPT3.d_h, d_ff=GPT3.d_ff, d=GPT3.d, vocab_size=0
    )
    exact = exact_bound(as_sizes, length=1 << 32)
    scale = denoise_bound(as_sizes, length=1 << 16)
    limit = log2_context_limit(BF16)
    is_within = (
        is_enough(scale, activations=BF16, attention=BF16, log2_positions=16)
        and bits_for("cot", small_limits["cot"]) == bits_for("scot", small_limits["scot"]) == 16
    )
    return [
        Claim("largest r for depth 96", "34", _both(by_depth), set(by_depth.values()) == {34}),
        Claim("largest r for head size 128", "32", _both(by_head), set(by_head.values()) == {32}),
        Claim(
            "steps or cells within 2^32 tokens",
            "roughly half a billion",
            _both(limits),
            all(4e8 < limit < 8e8 for limit in limits.values()),
        ),
        Claim(
            "largest number of states for d_ff, K = 3 and 10 symbols",
            "49",
            _both(states),
            set(states.values()) == {49},
        ),
        Claim(
            "c for exact attention weights, N = 2^32",
            "bfloat16 easily suffices",
            f"{exact:.1f}, rounded up to {BF16.at_least(exact):g}; maximum {BF16.greatest:.2g}",
            exact <= BF16.greatest,
        ),
        Claim(
            "largest r for depth 96, denoised",
            "16",
            _both(denoised),
            set(denoised.values()) == {16},
        ),
        Claim(
            "steps or cells within 2^16 tokens",
            "at least around 8000",
            _both(small_limits),
            all(limit > 8000 for limit in small_limits.values()) and is_within,
        ),
        Claim(
            "context limit of bfloat16 attention weights",
            "2^126, 8.5e37",
            f"2^{limit}, {2.0**limit:.2g}",
            f"2^{limit}, {2.0**limit:.2g}" == "2^126, 8.5e+37",
        ),
        Claim(
            "c with denoising, d_k = 128 and N = 2^16",
            "13.3",
            f"{scale:.2f}, rounded up to {BF16.at_least(scale):g}",
            round(scale, 1) == 13.3,
        ),
    ]


def _both(values: dict[Mode, int]) -> str:
    """Format a common value, or the value of each mode."""
    if len(set(values.values())) == 1:
        return f"{values['cot']:,}"
    return f"{values['cot']:,} steps, {values['scot']:,} cells"
