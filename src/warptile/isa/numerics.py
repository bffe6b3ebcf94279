"""How tensor cores add: which products one step sums, how they are aligned and truncated, and how the sum is rounded.

One step adds a number of exact products and the accumulator. Every term has a significand (of an operand in [1, 2),
below 1 for subnormals, which keep the smallest normal exponent) and the exponent of its operands' exponents added up.
All terms are shifted to the largest exponent, cut (toward zero) to some fraction bits, added exactly, and the sum is
rounded once: toward zero for f32, to nearest even for f16. An instruction with a larger k makes several steps, in order
of k.

Sources: Xie et al., "MMA-Sim" (arXiv 2511.10909); Khattak and Mikaitis (arXiv 2512.07004). The sm_90 rows were compared
with an H200 word by word.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format.

    Attributes:
        bits: storage bits of a value in a register (tf32 lies in 32, whose lowest 13 are ignored).
        exponent_bits: of the exponent field.
        fraction_bits: explicit significand bits that the tensor core reads.
        ignored_bits: low bits of the storage that it does not.
    """

    bits: int
    exponent_bits: int
    fraction_bits: int
    ignored_bits: int = 0

    def __post_init__(self) -> None:
        if 1 + self.exponent_bits + self.fraction_bits + self.ignored_bits != self.bits:
            raise ValueError(f"{self} does not add up to {self.bits} bits")


FORMATS = {
    "f16": FloatFormat(16, 5, 10),
    "bf16": FloatFormat(16, 8, 7),
    "tf32": FloatFormat(32, 8, 10, ignored_bits=13),
    "f32": FloatFormat(32, 8, 23),
}


@dataclass(frozen=True)
class Accumulation:
    """The adder of one architecture for one operand type.

    Attributes:
        terms: products that one step adds at most.
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
"""What a NaN result looks like."""

# Bytes of A that one step consumes, and fraction bits of its sum, from this compute capability (times ten) on.
_ADDERS = ((75, 16, 24), (80, 16, 24), (90, 32, 25))


def accumulation(element: str, capability: int) -> Accumulation:
    """The adder for operands of type ``element`` (f16, bf16 or tf32) on a compute capability (times ten)."""
    _, step_bytes, fraction_bits = [adder for adder in _ADDERS if adder[0] <= capability][-1]
    return Accumulation(step_bytes * 8 // FORMATS[element].bits, fraction_bits)
