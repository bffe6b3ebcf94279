"""``mma.sp``: multiplication by an A of which every second element is left out, and the metadata that says which.

A is cut along k into groups, of which half the elements are stored: 2 of 4 of 16 and 8 bits, 1 of 2 of 32 bits, and 2
of 4 pairs of 4 bits. One nibble of metadata a group names the stored ones. PTX ISA, "Matrix multiply-accumulate
operation using mma.sp instruction with sparse matrix A"; the placement of the nibbles was settled on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from warptile.isa.fragments import FragmentLayout
from warptile.isa.mma import ELEMENT_BITS, ROW_COLUMN, SMALL_FLOATS, accumulator, k_operand

VARIANTS = ("sp", "sp::ordered_metadata")
"""The instruction's two spellings. The second promises that each nibble names its elements in increasing order."""

NIBBLES_PER_SEGMENT = 4
"""Nibbles in a half of a metadata word: consecutive groups of one row."""

PAIRS: dict[int, tuple[int, ...]] = {0x4: (0, 1), 0x8: (0, 2), 0x9: (1, 2), 0xC: (0, 3), 0xD: (1, 3), 0xE: (2, 3)}
"""Legal nibbles where two of four are stored: the low two bits name the first, the high two the second."""

SINGLES: dict[int, tuple[int, ...]] = {0x4: (0,), 0xE: (1,)}
"""Legal nibbles where one of two is stored: they name the two halves of a 32-bit element."""

_FOUR_BIT_KINDS = ("mxf4", "mxf4nvf4")


@dataclass(frozen=True)
class SparseShape:
    """One shape with the types of A and B that may be combined.

    Attributes:
        name: the shape as PTX spells it; its k counts the elements of B.
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A before compression, rows of B.
        types: element types that A and B may have, independently of each other.
        accumulators: types of (D, C) that go together.
        capability: the first compute capability (times ten) whose assembler takes it.
        kind: the modifier ``.kind::``, or "".
        scales: of ``.block_scale``, the ``.scale_vec::`` and the type of the scales that go together.
        variants: spellings of the instruction that are taken.
    """

    name: str
    m: int
    n: int
    k: int
    types: tuple[str, ...]
    accumulators: tuple[tuple[str, str], ...]
    capability: int
    kind: str = ""
    scales: tuple[tuple[str, str], ...] = ()
    variants: tuple[str, ...] = VARIANTS

    def __post_init__(self) -> None:
        if self.name != f"m{self.m}n{self.n}k{self.k}":
            raise ValueError(f"{self.name} is not m{self.m}n{self.n}k{self.k}")
        if not self.types or not self.accumulators:
            raise ValueError(f"{self.name}: needs types and accumulators")
        if self.segments not in (1, 2, 4):
            raise ValueError(f"{self.name}: a row of {self.nibbles} nibbles does not fill the halves of metadata words")
        for matrix, rows, columns in (("a", self.m, self.k // 2), ("b", self.k, self.n)):
            found = self.fragment(matrix, self.types[0])
            if (found.rows, found.columns) != (rows, columns):
                raise ValueError(f"{self.name}: fragment {matrix} has the wrong size")

    @property
    def bits(self) -> int:
        """Bits of a register that an element of A or B takes."""
        return 4 if self.kind in _FOUR_BIT_KINDS else ELEMENT_BITS[self.types[0]]

    @property
    def flops(self) -> int:
        """Multiplications and additions that count: those of the stored elements."""
        return self.m * self.n * self.k

    @property
    def saturates(self) -> bool:
        """Whether ``.satfinite`` is taken."""
        return self.types[0] in ("s8", "u8", "s4", "u4")

    @property
    def group(self) -> int:
        """Elements along k that one nibble speaks of; half of them are stored."""
        return {32: 2, 16: 4, 8: 4, 4: 8}[self.bits]

    @property
    def nibbles(self) -> int:
        """Nibbles of a row of A."""
        return self.k // self.group

    @property
    def segments(self) -> int:
        """Halves of metadata words of a row of A; also how many lanes in four hold metadata."""
        return self.nibbles // NIBBLES_PER_SEGMENT

    @property
    def selectors(self) -> int:
        """Values of the sparsity selector, which says whose metadata words are read."""
        return 4 // self.segments

    @property
    def positions(self) -> dict[int, tuple[int, ...]]:
        """For each legal nibble, the places in its group of the stored elements, in their order."""
        if self.bits == 32:
            return SINGLES
        if self.bits == 4:
            return {nibble: (2 * i, 2 * i + 1, 2 * j, 2 * j + 1) for nibble, (i, j) in PAIRS.items()}
        return PAIRS

    def fragment(self, matrix: str, element: str) -> FragmentLayout:
        """The layout of compressed A, B or C (D is as C) with elements of type ``element``."""
        if matrix == "a":
            return k_operand(self.m, self.k // 2, self.bits)
        if matrix == "b":
            return k_operand(self.n, self.k, self.bits).transposed()
        return accumulator(self.m, self.n, ELEMENT_BITS[element])

    def metadata_place(self, row: int, nibble: int, selector: int = 0) -> tuple[int, int]:
        """The lane whose metadata word has a nibble of a row of A, and the nibble's lowest bit in it.

        Raises:
            ValueError: there is no such selector.
        """
        if selector not in range(self.selectors):
            raise ValueError(f"{self.name}.{self.types[0]}: sparsity selector {selector}, of {self.selectors}")
        segment, upper = nibble // NIBBLES_PER_SEGMENT, row // 8
        # 16 bits and more: halves are the rows g and g + 8. Fewer: halves are neighbouring segments of one row.
        within, half = (segment, upper) if self.bits >= 16 else (upper + 2 * (segment // 2), segment % 2)
        lane = 4 * (row % 8) + selector * self.segments + within
        return lane, 16 * half + 4 * (nibble % NIBBLES_PER_SEGMENT)

    def opcode(
        self,
        types: tuple[str, str, str, str],
        *,
        variant: str = "sp::ordered_metadata",
        saturate: bool = False,
        scale: tuple[str, str] | None = None,
    ) -> str:
        """The instruction as PTX spells it, for ``types`` of D, A, B and C.

        Raises:
            ValueError: the shape does not take one of these.
        """
        result, left, right, addend = types
        if (result, addend) not in self.accumulators or not {left, right} <= set(self.types):
            raise ValueError(f"{self.name} does not multiply {left} and {right} to {result} with {addend} added")
        if (saturate and not self.saturates) or (scale is None) != (not self.scales) or variant not in self.variants:
            raise ValueError(f"{self.name}: no mma.{variant}, cannot saturate, or a scale too few or too many")
        parts = [f"mma.{variant}", "sync", "aligned", self.name, *ROW_COLUMN]
        parts += [f"kind::{self.kind}"] if self.kind else []
        parts += ["block_scale", f"scale_vec::{scale[0]}"] if scale else []
        parts += ["satfinite"] if saturate else []
        parts += types
        parts += [scale[1]] if scale else []
        return ".".join(parts)


@cache
def metadata_index(shape: SparseShape, selector: int) -> tuple[NDArray[np.intp], NDArray[np.uint32]]:
    """Lane and lowest bit of every nibble, each an array of shape (rows of A, nibbles of a row)."""
    places = [
        [shape.metadata_place(row, nibble, selector) for nibble in range(shape.nibbles)] for row in range(shape.m)
    ]
    both = np.array(places)
    lanes, shifts = both[..., 0].astype(np.intp), both[..., 1].astype(np.uint32)
    lanes.setflags(write=False)
    shifts.setflags(write=False)
    return lanes, shifts


@cache
def position_table(shape: SparseShape) -> NDArray[np.int64]:
    """For each of the 16 nibbles, the places of the stored elements in their group; -1 where it is illegal."""
    table = np.full((16, shape.group // 2), -1, dtype=np.int64)
    for nibble, places in shape.positions.items():
        table[nibble] = places
    table.setflags(write=False)
    return table


def stored_columns(shape: SparseShape, words: NDArray[np.uint32], selector: int = 0) -> NDArray[np.int64]:
    """The column of A (before compression) of each stored element.

    Args:
        shape: the instruction.
        words: metadata words of whole warps, of shape (..., 32).
        selector: the sparsity selector.

    Returns:
        Shape (..., rows of A, k / 2), in the order of compressed A; -1 where the nibble is illegal.
    """
    lanes, shifts = metadata_index(shape, selector)
    nibbles = words[..., lanes] >> shifts & np.uint32(15)
    places = position_table(shape)[nibbles]
    starts = np.arange(shape.nibbles)[:, None] * shape.group
    return np.where(places < 0, -1, places + starts).reshape(*words.shape[:-1], shape.m, shape.k // 2)


_F16, _F32, _S32 = ("f16", "f16"), ("f32", "f32"), ("s32", "s32")
_FP8 = ("e4m3", "e5m2")
_ORDERED = ("sp::ordered_metadata",)

SHAPES: tuple[SparseShape, ...] = (
    SparseShape("m16n8k16", 16, 8, 16, ("f16",), (_F16, _F32), 80),
    SparseShape("m16n8k32", 16, 8, 32, ("f16",), (_F16, _F32), 80),
    SparseShape("m16n8k16", 16, 8, 16, ("bf16",), (_F32,), 80),
    SparseShape("m16n8k32", 16, 8, 32, ("bf16",), (_F32,), 80),
    SparseShape("m16n8k8", 16, 8, 8, ("tf32",), (_F32,), 80),
    SparseShape("m16n8k16", 16, 8, 16, ("tf32",), (_F32,), 80),
    SparseShape("m16n8k32", 16, 8, 32, ("s8", "u8"), (_S32,), 80),
    SparseShape("m16n8k64", 16, 8, 64, ("s8", "u8"), (_S32,), 80),
    SparseShape("m16n8k64", 16, 8, 64, ("s4", "u4"), (_S32,), 80),
    SparseShape("m16n8k128", 16, 8, 128, ("s4", "u4"), (_S32,), 80),
    SparseShape("m16n8k64", 16, 8, 64, _FP8, (_F32,), 89),
    SparseShape("m16n8k64", 16, 8, 64, _FP8, (_F16,), 120, variants=_ORDERED),
    SparseShape("m16n8k64", 16, 8, 64, SMALL_FLOATS, (_F16, _F32), 120, "f8f6f4", variants=_ORDERED),
    SparseShape("m16n8k64", 16, 8, 64, SMALL_FLOATS, (_F32,), 120, "mxf8f6f4", (("1X", "ue8m0"),), _ORDERED),
    SparseShape("m16n8k128", 16, 8, 128, ("e2m1",), (_F32,), 120, "mxf4", (("2X", "ue8m0"),), _ORDERED),
    SparseShape(
        "m16n8k128", 16, 8, 128, ("e2m1",), (_F32,), 120, "mxf4nvf4", (("2X", "ue8m0"), ("4X", "ue4m3")), _ORDERED
    ),
)
"""Every shape and type, as NVRTC 13.0 takes them. Those with a kind are for sm_120a and its family alone."""

NAMES = tuple(sorted({shape.name for shape in SHAPES}))


def find(
    name: str, left: str, right: str | None = None, kind: str = "", result: str | None = None
) -> SparseShape | None:
    """The shape called ``name`` that multiplies A of type ``left`` by B of type ``right`` (by default the same).

    The type of D tells apart the two of eight-bit floats; without it the older one is found.
    """
    for shape in SHAPES:
        same = (shape.name, shape.kind) == (name, kind) and {left, right or left} <= set(shape.types)
        if same and (result is None or result in {pair[0] for pair in shape.accumulators}):
            return shape
    return None


def type_lists(shape: SparseShape) -> Iterator[tuple[str, str, str, str]]:
    """Every legal combination of the types of D, A, B and C."""
    for result, addend in shape.accumulators:
        for left in shape.types:
            for right in shape.types:
                yield result, left, right, addend
