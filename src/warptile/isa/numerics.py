"""How tensor cores add: how many products one addition takes, how they are aligned and truncated, how the sum is
rounded.

One addition takes a number of exact products and the accumulator. Every term has a significand (of an operand in [1,
2), below 1 for subnormals, which keep the smallest normal exponent) and the exponent of its operands' exponents added
up. All terms are shifted to the largest exponent, cut (toward zero) to some fraction bits, added exactly, and the sum
is rounded once: toward zero for f32, to nearest even for f16; what becomes zero is positive. An instruction with a
larger k performs several additions, in order of k. ``mma.sp`` adds the products of the stored elements, and counts only
these.

Sources: Xie et al., "MMA-Sim" (arXiv 2511.10909); Khattak and Mikaitis (arXiv 2512.07004). What sm_90 does was compared
with an H200 word by word, instruction by instruction (``tests/data/instructions_h200.npz``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Specials = Literal["ieee", "nan"]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format.

    Attributes:
        bits: storage bits of a value in a register (tf32 lies in 32, whose lowest 13 are ignored).
        exponent_bits: of the exponent field.
        fraction_bits: explicit significand bits that the tensor core reads.
        ignored_bits: low bits of the storage that it does not.
        specials: whether the largest exponent is that of infinities and NaN (``ieee``), or of ordinary numbers but
            for the largest fraction, which is NaN (``nan``).
    """

    bits: int
    exponent_bits: int
    fraction_bits: int
    ignored_bits: int = 0
    specials: Specials = "ieee"

    def __post_init__(self) -> None:
        if 1 + self.exponent_bits + self.fraction_bits + self.ignored_bits != self.bits:
            raise ValueError(f"{self} does not add up to {self.bits} bits")


FORMATS = {
    "f16": FloatFormat(16, 5, 10),
    "bf16": FloatFormat(16, 8, 7),
    "tf32": FloatFormat(32, 8, 10, ignored_bits=13),
    "f32": FloatFormat(32, 8, 23),
    "e4m3": FloatFormat(8, 4, 3, specials="nan"),
    "e5m2": FloatFormat(8, 5, 2),
}


@dataclass(frozen=True)
class Accumulation:
    """The adder of one architecture for one operand type.

    Attributes:
        terms: products that one addition takes at most.
        fraction_bits: bits kept below the largest term's exponent.
        smallest_exponent: terms are aligned to this exponent at least.
        lost_bits: low fraction bits of an f32 result that are always zero.
    """

    terms: int
    fraction_bits: int
    smallest_exponent: int = -133
    lost_bits: int = 0

    def __post_init__(self) -> None:
        if self.terms < 1 or not 1 <= self.fraction_bits <= 40 or not 0 <= self.lost_bits <= 23:
            raise ValueError(f"{self}: such an adder is not known")


NAN_BITS = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}
"""Bits of a NaN result."""

# Bytes of A that one addition consumes, and fraction bits of its sum, from this compute capability (times ten) on.
_ADDERS = ((70, 8, 23), (75, 16, 24), (80, 16, 24), (90, 32, 25))

FLOAT8 = ("e4m3", "e5m2")


def unpacks_float8(capability: int) -> bool:
    """Whether ``mma`` has no adder for e4m3 and e5m2 on a compute capability, and multiplies them as f16.

    It then takes two additions, each of every second pair of products along k: the first starts from zero, the second
    from the result of the first, and C is added last, rounded to nearest.
    """
    return 90 <= capability < 120


def has_quad_pairs(capability: int) -> bool:
    """Whether ``mma.m8n8k4`` of f16 runs on tensor cores; else the compiler emulates it in f32.

    The routine for f32 accumulators is a chain of fused multiply-adds, to which C is added; that for f16 adds the first
    two products to C, then the last two, each pair of them a product and a fused multiply-add (read from SASS).
    """
    return capability < 80


def accumulation(element: str, capability: int) -> Accumulation:
    """The adder for floating-point operands of type ``element`` on a compute capability (times ten)."""
    if element in FLOAT8 and capability < 90:
        return Accumulation(16, 13, lost_bits=10)
    if element in FLOAT8 and unpacks_float8(capability):
        element = "f16"
    _, step_bytes, fraction_bits = [adder for adder in _ADDERS if adder[0] <= capability][-1]
    return Accumulation(step_bytes * 8 // FORMATS[element].bits, fraction_bits)


def group_accumulation(element: str) -> Accumulation:
    """The adder of ``wgmma`` for floating-point operands of type ``element``."""
    if element in FLOAT8:
        return Accumulation(32, 13, lost_bits=10)
    return accumulation(element, 90)
