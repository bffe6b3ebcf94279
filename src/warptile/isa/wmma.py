"""``wmma.load``, ``wmma.store`` and ``wmma.mma``: shapes, types, fragments and what the hardware executes for them.

PTX leaves the layout of WMMA fragments open. These are the layouts of the machine code that NVRTC 13.0 generates: the
same for sm_75 to sm_120 but for one (integer accumulators of m8n32k16), and those of the mma instructions underneath.
PTX ISA, "Warp-level matrix instructions using wmma".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from warptile.isa.fragment_access import Request, requests
from warptile.isa.fragments import SAME, FragmentLayout, Step

Matrix = Literal["a", "b", "c"]

ELEMENT_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f32": 32, "s32": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Native:
    """What one ``wmma.mma`` becomes.

    Attributes:
        capability: from this compute capability (times ten) on, up to the next entry.
        instruction: the machine instruction.
        count: how many of them.
        k: of one of them: products of one output that it adds up.
    """

    capability: int
    instruction: str
    count: int
    k: int


@dataclass(frozen=True)
class WmmaShape:
    """One shape with one type of A and B.

    Attributes:
        name: the shape as PTX spells it.
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        type: element type of A and B.
        accumulators: types that C and D may have, each on its own.
        capability: the first compute capability (times ten) whose compiler takes it.
        native: machine instructions, oldest capability first.
        layouts: (layout of A, layout of B) that are legal.
        operations: for single-bit types, capability at which each bit operation is taken.
    """

    name: str
    m: int
    n: int
    k: int
    type: str
    accumulators: tuple[str, ...]
    capability: int
    native: tuple[Native, ...]
    layouts: tuple[tuple[str, str], ...] = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
    operations: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.name != f"m{self.m}n{self.n}k{self.k}":
            raise ValueError(f"{self.name} is not m{self.m}n{self.n}k{self.k}")
        if not self.native or [n.capability for n in self.native] != sorted({n.capability for n in self.native}):
            raise ValueError(f"{self.name}.{self.type}: native instructions must be in order of capability")
        if self.native[0].capability != self.capability:
            raise ValueError(f"{self.name}.{self.type}: no native instruction for sm_{self.capability}")
        for matrix, element in (("a", self.type), ("b", self.type), *(("c", t) for t in self.accumulators)):
            for capability in (self.capability, 90):
                layout = _layout(self.m, self.n, self.k, matrix, element, capability)
                if (layout.rows, layout.columns) != self.extent(matrix):
                    raise ValueError(f"{self.name}.{element}: fragment {matrix} has the wrong size")

    def extent(self, matrix: str) -> tuple[int, int]:
        """Rows and columns of A, B or C."""
        return {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}[matrix]

    def fragment(self, matrix: str, element: str, capability: int) -> FragmentLayout:
        """The layout of operand ``matrix`` (C stands for D too) with elements of type ``element``."""
        return _layout(self.m, self.n, self.k, matrix, element, capability)

    def on(self, capability: int) -> Native:
        """What executes on this compute capability."""
        return [native for native in self.native if native.capability <= capability][-1]

    @property
    def flops(self) -> int:
        """Multiplications and additions of one instruction."""
        return 2 * self.m * self.n * self.k


# Fragments are tiles of 8 rows, each row 32 bits times four lanes: lane / 4 is the row, lane % 4 the register in it.
_ROW_STEPS: tuple[Step, ...] = ((1, 0), (2, 0), (4, 0))
_DOWN: Step = (8, 0)
_DOWN_AGAIN: Step = (16, 0)


def _k_operand(rows: int, k: int, element: str, *, left: bool) -> FragmentLayout:
    """An operand as a matrix of ``rows`` rows and ``k`` columns: A, or B transposed.

    The left operand of the machine instruction (16 rows at a time) has its second eight rows before its second half of
    k; the right one (8 columns at a time) the other way round.
    """
    bits = ELEMENT_BITS[element]
    register_bits = max(bits, 32)
    elements = register_bits // bits
    tile_k = 4 * elements
    halves: list[Step] = [(0, tile_k)] if k == 2 * tile_k else []
    down = [_DOWN, _DOWN_AGAIN][: (rows // 8).bit_length() - 1]
    steps = [*down[:1], *halves, *down[1:]] if left else [*halves, *down]
    if element == "f16":
        # Always eight registers, as on Volta, where lanes held the same elements twice: the upper ones are copies.
        steps += [SAME] * (3 - len(steps))
    return FragmentLayout(
        rows, k, bits, register_bits,
        lane=((0, elements), (0, 2 * elements), *_ROW_STEPS),
        register=tuple(steps),
        element=tuple((0, 1 << bit) for bit in range(elements.bit_length() - 1)),
    )  # fmt: skip


def _accumulator(rows: int, columns: int, element: str) -> FragmentLayout:
    """C or D: tiles of 8 rows and 8 columns, downwards first, two neighbouring columns in each lane."""
    tiles: list[Step] = [_DOWN, _DOWN_AGAIN][: (rows // 8).bit_length() - 1]
    right: list[Step] = [(0, 8), (0, 16)]
    tiles += right[: (columns // 8).bit_length() - 1]
    bits = ELEMENT_BITS[element]
    lane: tuple[Step, ...] = ((0, 2), (0, 4), *_ROW_STEPS)
    pair: Step = (0, 1)
    if bits == 16:
        return FragmentLayout(rows, columns, bits, 32, lane, tuple(tiles), (pair,))
    return FragmentLayout(rows, columns, bits, bits, lane, (pair, *tiles), ())


@cache
def _layout(m: int, n: int, k: int, matrix: str, element: str, capability: int) -> FragmentLayout:
    swapped = n == 32  # m8n32k16 is computed as the transposed product: B is the left operand
    if matrix == "a":
        return _k_operand(m, k, element, left=not swapped)
    if matrix == "b":
        return _k_operand(n, k, element, left=swapped).transposed()
    if swapped and not (element == "s32" and capability < 80):
        return _accumulator(n, m, element).transposed()
    return _accumulator(m, n, element)


_FLOAT16 = tuple(
    WmmaShape(
        f"m{m}n{n}k16", m, n, 16, "f16", ("f16", "f32"), 75,
        (Native(75, "HMMA.1688", 4, 8), Native(80, "HMMA.16816", 2, 16)),
    )
    for m, n in ((16, 16), (32, 8), (8, 32))
)  # fmt: skip
_BFLOAT16 = tuple(
    WmmaShape(f"m{m}n{n}k16", m, n, 16, "bf16", ("f32",), 80, (Native(80, "HMMA.16816.BF16", 2, 16),))
    for m, n in ((16, 16), (32, 8), (8, 32))
)
_INT8 = tuple(
    WmmaShape(
        f"m{m}n{n}k16", m, n, 16, element, ("s32",), 75,
        (Native(75, "IMMA.8816", 4, 16), Native(80, "IMMA.16816", 2, 16)),
    )
    for element in ("s8", "u8")
    for m, n in ((16, 16), (32, 8), (8, 32))
)  # fmt: skip
_ROW_COLUMN = (("row", "col"),)
_INT4 = tuple(
    WmmaShape(
        "m8n8k32", 8, 8, 32, element, ("s32",), 75,
        # From sm_90 on no unit multiplies four bits: even and odd nibbles are unpacked to bytes, two IMMA add them up.
        (Native(75, "IMMA.8832", 1, 32), Native(90, "IMMA.8816", 2, 16), Native(100, "IMMA.16816", 2, 16)),
        _ROW_COLUMN,
    )
    for element in ("s4", "u4")
)  # fmt: skip

SHAPES: tuple[WmmaShape, ...] = (
    *_FLOAT16,
    *_BFLOAT16,
    *_INT8,
    # Two steps of k = 4 for each half of the columns, not the single HMMA.1688 of mma.m16n8k8.
    WmmaShape("m16n16k8", 16, 16, 8, "tf32", ("f32",), 80, (Native(80, "HMMA.1684.TF32", 4, 4),)),
    WmmaShape("m8n8k4", 8, 8, 4, "f64", ("f64",), 80, (Native(80, "DMMA.884", 1, 4), Native(90, "DMMA.8x8x4", 1, 4))),
    *_INT4,
    WmmaShape(
        "m8n8k128", 8, 8, 128, "b1", ("s32",), 75,
        (Native(75, "BMMA.88128", 1, 128), Native(100, "IMMA.16832", 4, 32)),
        _ROW_COLUMN, operations=(("xor", 75), ("and", 80)),
    ),
)  # fmt: skip
"""Every shape and type. Which compiler takes which, and what it makes of it: NVRTC 13.0 and its disassembler."""

_BY_NAME = {(shape.name, shape.type): shape for shape in SHAPES}


def find(shape: str, element: str) -> WmmaShape | None:
    """The shape ``shape`` with A and B of type ``element``, if there is one."""
    return _BY_NAME.get((shape, element))


def find_accumulator(shape: str, element: str) -> WmmaShape | None:
    """Some shape called ``shape`` whose C may be of type ``element`` (their C fragments are all alike)."""
    return next((s for s in SHAPES if s.name == shape and element in s.accumulators), None)


def native_count(shape: WmmaShape, capability: int, operation: str | None = None) -> int:
    """Tensor instructions that one ``wmma.mma`` executes."""
    native = shape.on(capability)
    if operation == "xor" and native.capability == 75 and capability >= 90:
        return 2  # sm_90 has only AND: a & ~b and ~a & b
    return native.count


def access(
    shape: WmmaShape, matrix: Matrix, element: str, layout: str, *, shared: bool, capability: int
) -> tuple[Request, ...]:
    """The memory requests of one ``wmma.load`` (or, for C, of ``wmma.store`` too)."""
    return requests(
        shape.fragment(matrix, element, capability),
        row_major=layout == "row",
        shared=shared,
        accumulator=matrix == "c",
        matrices=4 if capability >= 80 and ELEMENT_BITS[element] == 16 else 2,
    )


def alignment_bytes(layout: FragmentLayout) -> int:
    """What the address of every row (of a row-major matrix) must be a multiple of.

    The PTX ISA asks for the size of the fragment ("Matrix storage for WMMA"), up to 32 bytes; the CUDA C++ guide lets a
    leading dimension be any multiple of 16 bytes, which padded shared memory needs. This is what both allow.
    """
    return min(16, layout.bytes)
