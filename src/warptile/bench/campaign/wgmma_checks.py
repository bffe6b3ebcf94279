"""What the wgmma family is checked on: every type, layout and alignment, and every mode of its last rung."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warptile.bench.protocol.workloads import BF16, E4M3, E5M2, F16_F16, F16_F32, F32, S8, TF32, TypeGroup
from warptile.device import REFERENCE
from warptile.rungs.kernel_spec import Config

SHAPE = (400, 656, 640)
"""Rows of 16-byte multiples in every type, several tiles along each side, none of them whole at the end."""

LARGE = (4096, 4096, 4096)
"""More tiles than SMs."""


@dataclass(frozen=True)
class OperandPlacement:
    """Extents and alignment of a check: what is added to `SHAPE`, and where matrices begin.

    Attributes:
        name: in a word.
        grown: added to m, n, k.
        how: arguments of `warptile.bench.protocol.workloads.to_problem`.
        persistent_ctas: persistent CTAs, where a configuration has them: few get several tiles each.
    """

    name: str
    grown: tuple[int, int, int] = (0, 0, 0)
    how: Mapping[str, Any] = field(default_factory=dict, hash=False)
    persistent_ctas: int | None = None

    def shape(self, group: TypeGroup) -> tuple[int, int, int]:
        """m, n, k in some types: elements narrower than a byte fill whole bytes of K."""
        m, n, k = (size + more for size, more in zip(SHAPE, self.grown, strict=True))
        return m, n, k + 7 * self.grown[2] if group.packed else k


ALIGNED, ODD_N, ODD_K = (
    OperandPlacement("aligned"),
    OperandPlacement("odd N", (0, -3, 0), persistent_ctas=4),
    OperandPlacement("odd K", (0, 0, 1)),
)
PLACEMENTS = (
    ALIGNED,
    OperandPlacement("few blocks", persistent_ctas=4),
    ODD_N,
    ODD_K,
    OperandPlacement("odd M", (1, 0, 0)),
    OperandPlacement("all odd", (1, 1, 1), persistent_ctas=4),
    OperandPlacement("displaced", how={"offset": 1}),
    OperandPlacement("displaced D", how={"offset": 1, "displaced": "CD"}, persistent_ctas=4),
    OperandPlacement("padded", how={"padding": 128}),
    OperandPlacement("padded oddly", how={"padding": 24}, persistent_ctas=4),
)
"""Where 24 elements are not whole units of 16 bytes, TMA cannot be used; 128 elements always are."""

SOME_PLACEMENTS = (ALIGNED, ODD_N, ODD_K)
"""Placements for the rungs below the last one, in types other than bfloat16."""

SCALED_GROUPS = (BF16, F16_F32, F16_F16, TF32, F32)
"""Types that are also checked with alpha, beta and a C."""

MODE_GROUPS = ((BF16, (ALIGNED, ODD_N, PLACEMENTS[5])), (E4M3, (ALIGNED,)), (S8, (ALIGNED,)))
"""Types and places in which the last rung's modes are checked."""

USUAL: Config = {
    "BM": 128, "BN": 256, "STAGES": 4, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0,
    "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": REFERENCE.sms,
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
"""What compute-sanitizer checks in addition to the small problems, in bfloat16: what is added to `SHAPE`, and what
differs from `USUAL`. In order: overlapped epilogues by TMA and by epilogue store warps, the latter for row- and
column-major D; ping-pong; clusters; split-K without and with clusters, and stream-K; repacking passes; unaligned A
through registers, without and with split-K."""


def mode_config(mode: Config, group: TypeGroup, bits: int) -> Config:
    """A whole configuration of wgmma-final for operands of so many bits: 8-bit floats with two-level accumulation
    have room for tiles of half the width."""
    found = {**USUAL, "BK": 128 * 8 // bits * mode.get("DEPTH", 1), **mode}
    found.pop("DEPTH", None)
    if group in (E4M3, E5M2) and found["BN"] > 128 and "BN" not in mode:
        found["BN"] = 128
    return found


def placements_of(name: str, group: TypeGroup, a_major: str, b_major: str) -> Iterator[OperandPlacement]:
    """The placements that a rung is checked at: all for the last rung and in bfloat16, else a few with both operands
    K-major."""
    if name == "wgmma-final" or group == BF16:
        yield from PLACEMENTS
    elif (a_major, b_major) == ("row", "col"):
        yield from SOME_PLACEMENTS
