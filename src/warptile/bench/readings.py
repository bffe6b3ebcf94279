"""What reading the source texts shows before anything is timed, each point with the test that shows it again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """One point.

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


READINGS = (
    Reading(
        "T1, tiled listing",
        "eight warps with 2 x 2 fragments each cover a block of 128 x 128",
        "They own 32 of its 64 fragments: half of C is never written. The emulator's check of unwritten output names "
        "it.",
        "tests/wrong_kernels/wmma_half_of_c_unwritten.cu",
    ),
    Reading(
        "T3, multistage, and T4, double buffer",
        "a `cp.async` group is committed only when there is a tile to load, and the wait is always for all but "
        "STAGES - 1",
        "On the last tiles nothing is waited for. Commit an empty group each time, or wait for all at the end; the "
        "emulator, whose copies arrive as late as they may, catches the published form.",
        "tests/wrong_kernels/async_no_empty_groups.cu",
    ),
    Reading(
        "T2, and T4 over a flat index",
        "`col ^ ((row & 0b1100) >> 2)` takes the bank conflicts away",
        "Of its two row bits one varies over the eight rows of an `ldmatrix`, so an 8-way conflict becomes a 4-way "
        "one. With rows of 128 bytes the 16-byte piece has to change by `row & 7`.",
        "tests/cpu/test_readings.py",
    ),
    Reading(
        "T4",
        "`mma.sync` reaches 96 % of cuBLAS",
        "That cuBLAS used `mma.sync` too. On Hopper it uses wgmma, and `mma.sync` issues about two thirds as fast: the "
        "fair measure there is the share of what `mma.sync` can issue.",
        "src/warptile/arch.py",
    ),
    Reading(
        "T1",
        "INT1 is gone after Turing, INT4 lives on in Hopper",
        "The other way round on sm_90: 1-bit products (AND; XOR is made of it) are machine instructions, 4-bit ones "
        "are made of 8-bit ones and many others.",
        "src/warptile/isa/native.json",
    ),
)
"""In the order of the texts' chapters."""
