"""Corrections to the source texts that need no measurement, each with the file that shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextCorrection:
    """One correction.

    Attributes:
        source: which text.
        said: what it prints.
        shown: what follows.
        evidence: the file of this repository that shows it.
    """

    source: str
    said: str
    shown: str
    evidence: str


CORRECTIONS = (
    TextCorrection(
        "T1, tiled listing",
        "eight warps with 2 x 2 fragments each cover a block of 128 x 128",
        "They own 32 of its 64 fragments: half of C is never written. The emulator's check of unwritten output names "
        "it.",
        "tests/wrong_kernels/wmma_half_of_c_unwritten.cu",
    ),
    TextCorrection(
        "T3, multistage, and T4, double buffer",
        "a `cp.async` group is committed only when there is a tile to load, and the wait is always for all but "
        "STAGES - 1",
        "On the last tiles the wait covers nothing. Commit an empty group each time, or wait for all groups at the "
        "end; the emulator, which completes copies as late as allowed, catches the published form.",
        "tests/wrong_kernels/async_no_empty_groups.cu",
    ),
    TextCorrection(
        "T2, and T4 over a flat index",
        "`col ^ ((row & 0b1100) >> 2)` removes the bank conflicts",
        "Of its two row bits one varies over the eight rows of an `ldmatrix`, so an 8-way conflict becomes a 4-way "
        "one. With 128-byte rows, the 16-byte chunk index must be XORed with `row & 7`.",
        "tests/cpu/isa/test_swizzle.py",
    ),
    TextCorrection(
        "T4",
        "`mma.sync` reaches 96 % of cuBLAS",
        "That cuBLAS used `mma.sync` too. On Hopper it uses wgmma, and `mma.sync` issues about two thirds as fast: the "
        "fair measure there is the share of what `mma.sync` can issue.",
        "src/warptile/arch.py",
    ),
    TextCorrection(
        "T1",
        "INT1 is gone after Turing, INT4 lives on in Hopper",
        "The opposite holds on sm_90: 1-bit MMA (AND; XOR is composed of it) is native, 4-bit MMA is composed of 8-bit "
        "MMA and many other instructions.",
        "src/warptile/isa/machine_code.json",
    ),
)
"""In the order of the texts' chapters."""
