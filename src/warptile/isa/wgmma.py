"""``wgmma.mma_async``: shapes, types and operands of the multiplication by four warps together, a warpgroup.

D and C have 64 rows, 16 for each warp. A is read from registers or from shared memory, B always from shared memory,
whose layout a 64-bit matrix descriptor states. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
Instructions".

In shared memory operands consist of 16-byte chunks: along K of one row (K-major), or along the rows of one k
(MN-major). Eight chunks that are adjacent along the other dimension form a core matrix. See `pattern`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from warptile.isa.fragments import FragmentLayout
from warptile.isa.mma import ELEMENT_BITS, k_operand
from warptile.isa.swizzle import CHUNK_BYTES

ROWS = 64
"""Rows of A, C and D."""

WARPS = 4
"""Warps of a warpgroup; the first one's number is a multiple of this."""

CAPABILITY = 90
"""The compute capability (times ten) that has these instructions; no later one does."""

ARCH = "sm_90a"
"""The architecture that takes them."""

EVERY_EIGHT = tuple(range(8, 257, 8))
INTEGER_COLUMNS = (8, 16, 24, *range(32, 257, 16))
"""Values of n for floating-point types, and for integers and bits."""


@dataclass(frozen=True)
class Family:
    """Element types that may be combined, and what can be done with them.

    Attributes:
        types: of A and B, each on its own.
        k: columns of A and rows of B of the dense instruction; the sparse one has twice as many.
        results: types of D.
        columns: values of n.
        transposable: both operands may be MN-major.
        negatable: both operands may be negated.
        saturates: ``.satfinite`` is taken.
        sparse: there is a sparse form.
    """

    types: tuple[str, ...]
    k: int
    results: tuple[str, ...]
    columns: tuple[int, ...] = EVERY_EIGHT
    transposable: bool = False
    negatable: bool = True
    saturates: bool = False
    sparse: bool = True

    @property
    def bits(self) -> int:
        """Of an element in memory."""
        return ELEMENT_BITS[self.types[0]]


FAMILIES: tuple[Family, ...] = (
    Family(("f16",), 16, ("f16", "f32"), transposable=True),
    Family(("bf16",), 16, ("f32",), transposable=True),
    Family(("tf32",), 8, ("f32",)),
    Family(("e4m3", "e5m2"), 32, ("f16", "f32")),
    Family(("s8", "u8"), 32, ("s32",), INTEGER_COLUMNS, negatable=False, saturates=True),
    Family(("b1",), 256, ("s32",), INTEGER_COLUMNS, negatable=False, sparse=False),
)


@dataclass(frozen=True)
class GroupShape:
    """One shape of one family.

    Attributes:
        family: its types.
        n: columns of B, C and D.
        sparse: half of A is left out.
    """

    family: Family
    n: int
    sparse: bool = False

    def __post_init__(self) -> None:
        if self.n not in self.family.columns or (self.sparse and not self.family.sparse):
            raise ValueError(f"wgmma of {'sparse ' * self.sparse}{self.family.types[0]} has no n of {self.n}")

    @property
    def k(self) -> int:
        """Rows of B."""
        return self.family.k * (2 if self.sparse else 1)

    @property
    def stored(self) -> int:
        """Columns of A as it is stored."""
        return self.family.k

    @property
    def name(self) -> str:
        """As PTX spells it."""
        return f"m{ROWS}n{self.n}k{self.k}"

    @property
    def flops(self) -> int:
        """Multiplications and additions of one warp; of a sparse A, those of its stored elements."""
        return 2 * ROWS // WARPS * self.n * self.stored

    def fragment(self) -> FragmentLayout:
        """A in the registers of one warp: its 16 rows."""
        return k_operand(ROWS // WARPS, self.stored, self.family.bits)

    def opcode(self, types: tuple[str, str, str]) -> str:
        """The instruction as PTX spells it, for ``types`` of D, A and B.

        Raises:
            ValueError: the family does not take them.
        """
        if types[0] not in self.family.results or not set(types[1:]) <= set(self.family.types):
            raise ValueError(f"{self.name} does not multiply {types[1]} and {types[2]} to {types[0]}")
        spelled = "wgmma.mma_async" + ".sp" * self.sparse
        bits = ".and.popc" if types[1] == "b1" else ""
        return f"{spelled}.sync.aligned.{self.name}.{'.'.join(types)}{bits}"

    def registers(self, result: str) -> int:
        """Registers of D in each lane."""
        return self.n // 2 * ELEMENT_BITS[result] // 32


@cache
def shapes() -> dict[tuple[str, str, bool], GroupShape]:
    """Every shape by name, element type and sparsity."""
    return {
        (shape.name, element, shape.sparse): shape
        for family in FAMILIES
        for sparse in (False, True)[: 1 + family.sparse]
        for shape in (GroupShape(family, n, sparse) for n in family.columns)
        for element in family.types
    }


def find(name: str, left: str, right: str, *, sparse: bool = False) -> GroupShape | None:
    """The shape called ``name`` that multiplies A of type ``left`` by B of type ``right``."""
    found = shapes().get((name, left, sparse))
    return found if found is not None and right in found.family.types else None


def type_lists(family: Family) -> Iterator[tuple[str, str, str]]:
    """Every legal combination of the types of D, A and B."""
    for result in family.results:
        for left in family.types:
            for right in family.types:
                yield result, left, right


@cache
def accumulator_places(n: int, bits: int, warps: int = WARPS) -> NDArray[np.intp]:
    """Where each lane has its elements of C and D: (32 * warps, registers, elements of one) row-major numbers.

    Like those of `warptile.isa.mma.accumulator`, repeated every eight columns; each warp has the next 16 rows.
    """
    lane, number = np.arange(32 * warps)[:, None], np.arange(n // 2)
    row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (number >> 1 & 1)
    column = 8 * (number >> 2) + 2 * (lane % 4) + (number & 1)
    held = 32 // bits
    places: NDArray[np.intp] = (row * n + column).reshape(32 * warps, -1, held).astype(np.intp)
    places.setflags(write=False)
    return places


@cache
def by_name() -> dict[str, tuple[GroupShape, tuple[str, str, str]]]:
    """Every instruction, named as in `warptile.isa.catalogue` (``wgmma.m64n256k16.f32.f16``): its shape and types."""
    found = {}
    for (_, element, is_sparse), shape in shapes().items():
        for result, left, right in type_lists(shape.family):
            if left == element:
                family = "wgmma.sp" if is_sparse else "wgmma"
                parts = [family, shape.name, result, left, *([right] if right != left else [])]
                found[".".join(parts)] = shape, (result, left, right)
    return found


# -- descriptors -------------------------------------------------------------------------------------------------------

SWIZZLES = (0, 128, 64, 32)
"""Bytes of a row that is permuted, by the two highest bits of a descriptor; 0: none is."""


@dataclass(frozen=True)
class Descriptor:
    """An operand in shared memory.

    Attributes:
        start: address of its first byte.
        leading: bytes; see `pattern`.
        stride: bytes; see `pattern`.
        base_offset: at which of eight 128-byte lines the swizzle pattern starts; 0 where that is a multiple of 1024.
        swizzle: one of `SWIZZLES`.
    """

    start: int
    leading: int
    stride: int
    base_offset: int = 0
    swizzle: int = 0

    @staticmethod
    def decode(bits: int) -> Descriptor:
        """The descriptor that 64 bits state."""
        start, leading, stride = (((bits >> place) & 0x3FFF) << 4 for place in (0, 16, 32))
        return Descriptor(start, leading, stride, bits >> 49 & 7, SWIZZLES[bits >> 62 & 3])

    def encode(self) -> int:
        """The descriptor as the 64 bits that the instruction takes.

        Raises:
            ValueError: a field does not fit, or is not a multiple of 16 bytes.
        """
        for name, value in (("start", self.start), ("leading", self.leading), ("stride", self.stride)):
            if value % CHUNK_BYTES or not 0 <= value < 1 << 18:
                raise ValueError(f"{name} of {value}: it is a multiple of 16 below {1 << 18}")
        if not 0 <= self.base_offset < 8:
            raise ValueError(f"base offset of {self.base_offset}: there are eight lines")
        word = self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.base_offset << 49
        return word | SWIZZLES.index(self.swizzle) << 62


@dataclass(frozen=True)
class Pattern:
    """The chunks of an operand: the address of each is ``start + fixed + leadings * leading + strides * stride``, then
    swizzled.

    The three arrays have the shape (rows, chunks along k) if K-major, (k, chunks along the rows) if MN-major.
    """

    fixed: NDArray[np.int64]
    leadings: NDArray[np.int64]
    strides: NDArray[np.int64]
    swizzle: int

    def addresses(
        self,
        start: NDArray[np.int64],
        leading: NDArray[np.int64],
        stride: NDArray[np.int64],
        base_offset: NDArray[np.int64] | int = 0,
    ) -> NDArray[np.int64]:
        """The address of every chunk, for many descriptors: shape (descriptors, ...).

        The swizzle applies to addresses, not to offsets from the operand's start: it XORs bits 4 to 6 with the number
        of the 128-byte line, counted from the base offset (checked on an H200, as all of `pattern`).
        """
        start, leading, stride = (each[:, None, None] for each in (start, leading, stride))
        linear: NDArray[np.int64] = start + self.fixed + leading * self.leadings + stride * self.strides
        if self.swizzle:
            line = (linear >> 7) - np.reshape(base_offset, (-1, 1, 1))
            linear = linear ^ (line & (self.swizzle // CHUNK_BYTES - 1)) * CHUNK_BYTES
        return linear


@cache
def pattern(rows: int, k: int, bits: int, swizzle: int, *, transposed: bool = False, first: int = 0) -> Pattern:
    """The layout of an operand: ``rows`` rows from row ``first`` on, of ``k`` elements of ``bits`` bits.

    K-major: the eight rows of a core matrix are contiguous, and the next core matrix along the rows is a stride offset
    further. A row has 16 bytes without swizzle, else as many as the swizzle mode; elements further along K are a
    leading offset further. Only the B of a sparse `wgmma`, 64 bytes along K in swizzled rows of 32, uses that.

    MN-major (``transposed``; 16-bit elements only): K and rows change roles. Every eight of k are contiguous; the next
    eight are a stride offset further, and the next rows a leading offset. Without swizzle the two offsets are
    exchanged.

    Raises:
        ValueError: there is no such operand.
    """
    if transposed:
        if bits != 16:
            raise ValueError(f"only elements of 16 bits can be MN-major, not of {bits}")
        along_k, chunk = np.arange(k)[:, None], np.arange(first // 8, (first + rows) // 8)[None, :]
        zero = np.zeros((k, rows // 8), np.int64)
        if not swizzle:
            return Pattern(along_k % 8 * CHUNK_BYTES + zero, along_k // 8 + zero, chunk + zero, 0)
        wide = swizzle // CHUNK_BYTES
        fixed = along_k % 8 * swizzle + chunk % wide * CHUNK_BYTES
        return Pattern(fixed, chunk // wide + zero, along_k // 8 + zero, swizzle)
    chunks = k * bits // (8 * CHUNK_BYTES)
    row, chunk = np.arange(first, first + rows)[:, None], np.arange(chunks)[None, :]
    zero = np.zeros((rows, chunks), np.int64)
    if not swizzle:
        return Pattern(row % 8 * CHUNK_BYTES + zero, chunk + zero, row // 8 + zero, 0)
    wide = swizzle // CHUNK_BYTES
    return Pattern(row % 8 * swizzle + chunk % wide * CHUNK_BYTES, chunk // wide + zero, row // 8 + zero, swizzle)
