"""Single-warp memory accesses whose counts were read with Nsight Compute: where each lane reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LANE = np.arange(32)
ROW_BYTES = 8192
"""Distance of two rows in global memory: far enough that no two share a line."""


@dataclass(frozen=True)
class Pattern:
    """One access by each lane.

    ``kind`` is cp.async, ld or st (shared memory); ``source`` and ``target`` are byte offsets in global and in shared
    memory, a lane with a negative source does nothing.
    """

    name: str
    kind: str
    size: int
    source: np.ndarray
    target: np.ndarray

    @property
    def kernel(self) -> str:
        """The kernel of tests/gpu/access_patterns.cu that makes it."""
        return f"{self.kind.replace('.', '_')}<{self.size}>"


def rows(bytes_each: int, size: int, pitch: int, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ``bytes_each`` bytes from distant lines, ``pitch`` apart in shared memory."""
    lanes = bytes_each // size
    row, column = LANE // lanes, LANE % lanes * size
    return row * ROW_BYTES + column, row * pitch + column + shift


def _patterns() -> list[Pattern]:
    found = []

    def copy(name: str, size: int, source: np.ndarray, target: np.ndarray) -> None:
        found.append(Pattern(name, "cp.async", size, source, target))

    def shared(name: str, kind: str, size: int, element: np.ndarray) -> None:
        found.append(Pattern(name, kind, size, 0 * LANE, size * element))

    first = [np.where(count > LANE, 16 * LANE, -1) for count in (1, 2, 4, 8)]
    for name, source, target in (
        ("one run", 16 * LANE, 16 * LANE),
        ("one run, shared 16 bytes on", 16 * LANE, 16 * LANE + 16),
        ("one run, global 16 bytes on", 16 * LANE + 16, 16 * LANE),
        ("one run, both 16 bytes on", 16 * LANE + 16, 16 * LANE + 16),
        ("rows of 64, pitch 64", *rows(64, 16, 64)),
        ("rows of 64, pitch 80", *rows(64, 16, 80)),
        ("rows of 64, pitch 80, 16 bytes on", *rows(64, 16, 80, 16)),
        ("rows of 64, pitch 96", *rows(64, 16, 96)),
        ("rows of 256, pitch 256", *rows(256, 16, 256)),
        ("rows of 256, pitch 272", *rows(256, 16, 272)),
        ("rows of 256, pitch 288", *rows(256, 16, 288)),
        ("rows of 128, pitch 128", *rows(128, 16, 128)),
        ("rows of 128, pitch 144", *rows(128, 16, 144)),
        ("rows of 128, chunks XOR row", rows(128, 16, 128)[0], LANE // 8 * 128 + 16 * (LANE % 8 ^ LANE // 8)),
        ("rows of 128, chunks XOR row + 4", rows(128, 16, 128)[0], LANE // 8 * 128 + 16 * (LANE % 8 ^ (4 + LANE // 8))),
        ("a shared line each", 16 * LANE, 128 * LANE),
        ("half of each sector", 32 * LANE, 16 * LANE),
        ("a global line each", 128 * LANE, 16 * LANE),
        ("rows of 32, pitch 32", *rows(32, 16, 32)),
        ("rows of 32, pitch 48", *rows(32, 16, 48)),
        ("1 lane", first[0], 16 * LANE),
        ("8 lanes", first[3], 16 * LANE),
        ("8 lanes, shared 16 bytes on", first[3], 16 * LANE + 16),
        ("2 lanes, shared 16 bytes on", first[1], 16 * LANE + 16),
        ("4 lanes, shared 16 bytes on", first[2], 16 * LANE + 16),
    ):
        copy(name, 16, source, target)
    transposed = LANE % 8 * 528 + 4 * (LANE // 8)
    for name, source, target in (
        ("one run", 4 * LANE, 4 * LANE),
        ("one run, shared 4 bytes on", 4 * LANE, 4 * LANE + 4),
        ("rows of 32, transposed, pitch 528", rows(32, 4, 0)[0], transposed),
        ("one bank", 4 * LANE, 128 * LANE),
        ("a global line each", 128 * LANE, 4 * LANE),
        ("rows of 32, pitch 32", *rows(32, 4, 32)),
        ("every other word", 8 * LANE, 4 * LANE),
        ("pitch 132", 4 * LANE, 132 * LANE),
    ):
        copy(name, 4, source, target)
    for name, source, target in (
        ("one run", 8 * LANE, 8 * LANE),
        ("one run, shared 8 bytes on", 8 * LANE, 8 * LANE + 8),
        ("rows of 32, pitch 32", *rows(32, 8, 32)),
        ("rows of 64, pitch 72", *rows(64, 8, 72)),
    ):
        copy(name, 8, source, target)
    xor_2 = LANE % 2 | LANE // 4 * 2
    for name, element in (
        ("lane", LANE),
        ("lane / 2", LANE // 2),
        ("lane / 4", LANE // 4),
        ("lane / 8", LANE // 8),
        ("lane % 16", LANE % 16),
        ("lane % 8", LANE % 8),
        ("lane ^ 2 alike", xor_2),
        ("all alike", 0 * LANE),
        ("lane / 2 in one half", np.where(LANE < 16, LANE // 2, LANE)),
        ("lane ^ 4 alike", LANE % 4 | LANE // 8 * 4),
        ("alike in one half", np.where(LANE < 16, 0, LANE)),
        ("backwards", 31 - LANE),
        ("lane / 2, every other", LANE // 2 * 2),
        ("lane / 2 and lane ^ 2", np.where(LANE < 16, LANE // 2, xor_2)),
        ("some pairs alike", np.where(LANE % 4 < 2, LANE // 2, LANE)),
        ("lane / 2, one bank", LANE // 2 * 8),
    ):
        shared(name, "ld", 16, element)
    for name, element in (
        ("lane", LANE),
        ("lane / 2", LANE // 2),
        ("lane / 4", LANE // 4),
        ("lane % 16", LANE % 16),
        ("lane ^ 2 alike", xor_2),
        ("all alike", 0 * LANE),
        ("every other", 2 * LANE),
        ("lane % 8", LANE % 8),
        ("lane / 2 in one half", np.where(LANE < 16, LANE // 2, LANE)),
        ("one bank", 16 * LANE),
        ("lane / 16", LANE // 16),
    ):
        shared(name, "ld", 8, element)
    for size, elements in ((16, (1, 2, 0, -2)), (8, (1, 2, -2)), (4, (1, 2, 0))):
        for step in elements:
            name = {1: "lane", 2: "lane / 2", 0: "all alike", -2: "every other"}[step]
            element = {1: LANE, 2: LANE // 2, 0: 0 * LANE, -2: 2 * LANE}[step]
            shared(name, "st", size, element)
    return found


PATTERNS = _patterns()
