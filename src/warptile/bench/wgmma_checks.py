"""What the wgmma family is checked on: every type, layout and alignment, and every mode of its last rung."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warptile.bench.workloads import BF16, E4M3, E5M2, F16_F16, F16_F32, S8, TF32, Group
from warptile.rungs.rung import Config

SHAPE = (400, 656, 640)
"""Rows of 16-byte multiples in every type, several tiles along each side, none of them whole at the end."""

LARGE = (4096, 4096, 4096)
"""More tiles than multiprocessors."""


@dataclass(frozen=True)
class Place:
    """How operands lie: what is added to `SHAPE`, and where matrices begin.

    Attributes:
        name: in a word.
        grown: added to m, n, k.
        how: arguments of `warptile.bench.workloads.to_problem`.
        staying: blocks, where a configuration says how many stay: few take several tiles each.
    """

    name: str
    grown: tuple[int, int, int] = (0, 0, 0)
    how: Mapping[str, Any] = field(default_factory=dict, hash=False)
    staying: int | None = None

    def shape(self, group: Group) -> tuple[int, int, int]:
        """m, n, k in some types: elements narrower than a byte fill whole bytes of K."""
        m, n, k = (size + more for size, more in zip(SHAPE, self.grown, strict=True))
        return m, n, k + 7 * self.grown[2] if group.packed else k


ALIGNED, ODD_N, ODD_K = Place("aligned"), Place("odd N", (0, -3, 0), staying=4), Place("odd K", (0, 0, 1))
PLACES = (
    ALIGNED,
    Place("few blocks", staying=4),
    ODD_N,
    ODD_K,
    Place("odd M", (1, 0, 0)),
    Place("all odd", (1, 1, 1), staying=4),
    Place("displaced", how={"offset": 1}),
    Place("displaced D", how={"offset": 1, "displaced": "CD"}, staying=4),
    Place("padded", how={"padding": 128}),
    Place("padded oddly", how={"padding": 24}, staying=4),
)
"""Where 24 elements are not whole units of 16 bytes, TMA cannot be used; 128 elements always are."""

SOME_PLACES = (ALIGNED, ODD_N, ODD_K)
"""Of the rungs below the last one, in types beside bfloat16."""

SCALED_GROUPS = (BF16, F16_F32, F16_F16, TF32)
"""Types that are also checked with alpha, beta and a C."""

MODE_GROUPS = ((BF16, (ALIGNED, ODD_N, PLACES[5])), (E4M3, (ALIGNED,)), (S8, (ALIGNED,)))
"""Types and places in which the last rung's modes are checked."""

USUAL: Config = {
    "BM": 128, "BN": 256, "STAGES": 4, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0,
    "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 132,
}  # fmt: skip

_WIDTHS = (8, 16, 24, 40, 72, 80, 104, 136, 152, 176, 200, 208, 240, 248)
_PINGPONG: Config = {"PINGPONG": 1, "BN": 128}
MODES: tuple[Config, ...] = (
    {},
    {"SMS": 4},
    {"ALONG_N": 1, "GROUP": 2, "SMS": 4},
    {"GROUP": 1, "SMS": 5},
    {"BM": 64, "CONSUMERS": 1},
    {"BM": 128, "CONSUMERS": 1, "BN": 128, "SMS": 4},
    {"BM": 256, "BN": 128, "STAGES": 3, "SMS": 4},
    {"DEPTH": 2, "STAGES": 2, "SMS": 4},
    _PINGPONG,
    {**_PINGPONG, "SMS": 3},
    {**_PINGPONG, "BM": 64, "BN": 256, "SMS": 4},
    {**_PINGPONG, "CM": 2, "SMS": 4},
    {**_PINGPONG, "SWAP": 1, "BN": 64, "SMS": 4},
    {"OVERLAP": 1},
    {"OVERLAP": 1, "SMS": 4},
    {"OVERLAP": 1, "BN": 192, "SMS": 5},
    {"OVERLAP": 1, "CM": 2, "SMS": 4},
    {"STREAM": 1, "SMS": 5},
    {"STREAM": 1, "SMS": 7, "BN": 192},
    {"STREAM": 1, "CM": 2, "SMS": 10, "BN": 192},
    {"SPLITS": 2},
    {"SPLITS": 3, "BN": 192},
    {"SPLITS": 4, "BM": 64, "CONSUMERS": 1},
    {"SPLITS": 2, "CN": 2},
    {"CM": 2, "SMS": 8},
    {"CN": 2, "SMS": 8},
    {"CM": 2, "CN": 2, "SMS": 8},
    {"CM": 4, "SMS": 8},
    {"SWAP": 1},
    {"SWAP": 1, "BN": 64, "SMS": 6},
    {"SWAP": 1, "BN": 16, "OVERLAP": 1},
    *({"BN": width, "SMS": 12} for width in _WIDTHS),
)
"""What differs from `USUAL`; ``DEPTH`` counts rows of 128 bytes of a stage. Those that a type does not take are left
out there; every one is taken in bfloat16."""


SANITIZED: tuple[tuple[tuple[int, int, int], Config], ...] = (
    ((0, 0, 0), {"OVERLAP": 1, "SMS": 4}),
    ((0, -3, 0), {"OVERLAP": 1, "BN": 128, "SMS": 4}),
    ((0, -3, 0), {"OVERLAP": 1, "BN": 64, "SWAP": 1, "SMS": 4}),
    ((0, 0, 0), {**_PINGPONG, "SMS": 3}),
    ((0, 0, 0), {"CM": 2, "CN": 2, "SMS": 8}),
    ((0, 0, 0), {"SPLITS": 2}),
    ((0, 0, 0), {"SPLITS": 2, "CN": 2}),
    ((0, 0, 0), {"STREAM": 1, "SMS": 7, "BN": 192}),
    ((0, 0, 0), {"STREAM": 1, "CM": 2, "SMS": 10, "BN": 192}),
    ((1, 1, 1), {"SMS": 4}),
    ((0, -600, 1), {"BM": 64, "BN": 56, "CONSUMERS": 1, "SMS": 4}),
    ((0, -600, 1), {"BM": 64, "BN": 56, "CONSUMERS": 1, "SPLITS": 3}),
)
"""What compute-sanitizer looks at beside the small problems, in bfloat16: what is added to `SHAPE`, and what differs
from `USUAL`. In order: D stored inside the next tile, by TMA and by storers, these by rows and by columns; warpgroups
that take turns; clusters; depth that is split, without and with clusters, and shared; operands copied before; rows of A
that begin at any element, through registers, without and with splits."""


def mode_config(mode: Config, group: Group, bits: int) -> Config:
    """A whole configuration of wgmma-final for operands of so many bits: 8-bit floats with exact sums have room for
    tiles of half the width."""
    found = {**USUAL, "BK": 128 * 8 // bits * mode.get("DEPTH", 1), **mode}
    found.pop("DEPTH", None)
    if group in (E4M3, E5M2) and found["BN"] > 128 and "BN" not in mode:
        found["BN"] = 128
    return found


def places_of(name: str, group: Group, a_major: str, b_major: str) -> Iterator[Place]:
    """Where a rung's operands lie: everywhere for the last rungs and, in bfloat16, for all; else at some places, with
    K contiguous."""
    if name == "wgmma-final" or group == BF16:
        yield from PLACES
    elif (a_major, b_major) == ("row", "col"):
        yield from SOME_PLACES
