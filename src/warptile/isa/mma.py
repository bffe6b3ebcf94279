"""``mma.sync``: shapes, types, modifiers and fragments of every warp-wide multiplication of registers.

PTX ISA, "Multiply-and-Accumulate Instruction: mma". What the assembler makes of each is in `warptile.isa.machine_code`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from warptile.isa import wmma
from warptile.isa.fragments import FragmentLayout, Step

Matrix = Literal["a", "b", "c"]

ROW_COLUMN = ("row", "col")
ROUNDINGS = ("rn", "rz", "rm", "rp")
SMALL_FLOATS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")

ELEMENT_BITS = {**wmma.ELEMENT_BITS, **dict.fromkeys(SMALL_FLOATS, 8)}
"""Bits that an element takes in a register. Six- and four-bit floats have a byte each, but see `MmaShape.bits`."""

_FOUR_BIT_KINDS = ("mxf4", "mxf4nvf4")
_INTEGERS = ("s8", "u8", "s4", "u4")


@dataclass(frozen=True)
class MmaShape:
    """One shape with the types of A and B that may be combined.

    Attributes:
        name: the shape as PTX spells it.
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        types: element types that A and B may have, independently of each other.
        accumulators: types of (D, C) that go together.
        capability: the first compute capability (times ten) whose assembler takes it.
        layouts: (layout of A, layout of B) that are legal.
        kind: the modifier ``.kind::``, or "".
        scales: of ``.block_scale``, the ``.scale_vec::`` and the type of the scales that go together.
        operations: for single-bit types, capability at which each bit operation is taken.
        matrices: products that one instruction makes. Their A and C are stacked downwards in the fragments, their B
            side by side.
    """

    name: str
    m: int
    n: int
    k: int
    types: tuple[str, ...]
    accumulators: tuple[tuple[str, str], ...]
    capability: int
    layouts: tuple[tuple[str, str], ...] = (ROW_COLUMN,)
    kind: str = ""
    scales: tuple[tuple[str, str], ...] = ()
    operations: tuple[tuple[str, int], ...] = ()
    matrices: int = 1

    def __post_init__(self) -> None:
        if self.name != f"m{self.m}n{self.n}k{self.k}":
            raise ValueError(f"{self.name} is not m{self.m}n{self.n}k{self.k}")
        if not self.types or not self.accumulators or not self.layouts:
            raise ValueError(f"{self.name}: needs types, accumulators and layouts")
        if len({ELEMENT_BITS[element] for element in self.types}) != 1:
            raise ValueError(f"{self.name}: {', '.join(self.types)} differ in size")
        if ("b1" in self.types) != bool(self.operations):
            raise ValueError(f"{self.name}: bit operations are for b1, and b1 needs one")
        if self.kind.startswith("mx") != bool(self.scales):
            raise ValueError(f"{self.name}: block scales are for the mx kinds, and those need them")
        for layouts in self.layouts:
            for matrix in ("a", "b", *(f"c {element}" for pair in self.accumulators for element in pair)):
                place, _, element = matrix.partition(" ")
                found = self.fragment(place, element or self.types[0], layouts)
                if (found.rows, found.columns) != self.extent(place):
                    raise ValueError(f"{self.name}: fragment {matrix} has the wrong size")

    @property
    def bits(self) -> int:
        """Bits of a register that an element of A or B takes."""
        return 4 if self.kind in _FOUR_BIT_KINDS else ELEMENT_BITS[self.types[0]]

    @property
    def flops(self) -> int:
        """Multiplications and additions of one instruction."""
        return 2 * self.m * self.n * self.k * self.matrices

    @property
    def saturates(self) -> bool:
        """Whether ``.satfinite`` is taken: the sum is clamped to s32 instead of wrapping around."""
        return self.types[0] in _INTEGERS

    @property
    def roundings(self) -> tuple[str, ...]:
        """The rounding modifiers that are taken."""
        return ROUNDINGS if self.types == ("f64",) else ()

    def extent(self, matrix: str) -> tuple[int, int]:
        """Rows and columns of the fragment of A, B or C (D is as C)."""
        down, across = self.m * self.matrices, self.n * self.matrices
        return {"a": (down, self.k), "b": (self.k, across), "c": (down, self.n)}[matrix]

    def fragment(self, matrix: str, element: str, layouts: tuple[str, str] = ROW_COLUMN) -> FragmentLayout:
        """The layout of operand ``matrix`` (C stands for D too) with elements of type ``element``.

        Only the four products of m8n8k4 have fragments that depend on ``layouts``, those of A and B.
        """
        if self.matrices > 1:
            return _quad_pair_fragment(matrix, element, layouts)
        if matrix == "a":
            return k_operand(self.m, self.k, self.bits)
        if matrix == "b":
            return k_operand(self.n, self.k, self.bits).transposed()
        return accumulator(self.m, self.n, ELEMENT_BITS[element])

    def opcode(
        self,
        types: tuple[str, str, str, str],
        *,
        layouts: tuple[str, str] = ROW_COLUMN,
        operation: str = "",
        rounding: str = "",
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
        if layouts not in self.layouts or (scale is None) != (not self.scales):
            raise ValueError(f"{self.name}: no layouts {layouts}, or a scale too few or too many")
        if (operation or None) not in (dict(self.operations) or (None,)):
            raise ValueError(f"{self.name}: bit operation {operation!r}")
        if (rounding and rounding not in self.roundings) or (saturate and not self.saturates):
            raise ValueError(f"{self.name}: cannot round {rounding!r}, or cannot saturate")
        parts = ["mma", "sync", "aligned", self.name, *layouts]
        parts += [f"kind::{self.kind}"] if self.kind else []
        parts += ["block_scale", f"scale_vec::{scale[0]}"] if scale else []
        parts += ["satfinite"] if saturate else []
        parts += [rounding] if rounding else []
        parts += types
        parts += [operation, "popc"] if operation else []
        parts += [scale[1]] if scale else []
        return ".".join(parts)


# Tiles of 8 rows, each row 32 bits (or one double) times four lanes: lane / 4 is the row, lane % 4 the place in it.
_ROW_STEPS: tuple[Step, ...] = ((1, 0), (2, 0), (4, 0))


@cache
def k_operand(rows: int, k: int, bits: int) -> FragmentLayout:
    """An operand with ``k`` along its columns: A, or B transposed. Registers go down first, then along k."""
    register_bits = max(bits, 32)
    elements = register_bits // bits
    down: list[Step] = [(8, 0)][: rows // 16]
    along: list[Step] = [(0, 4 * elements << bit) for bit in range((k // (4 * elements)).bit_length() - 1)]
    return FragmentLayout(
        rows, k, bits, register_bits,
        lane=((0, elements), (0, 2 * elements), *_ROW_STEPS),
        register=(*down, *along),
        element=tuple((0, 1 << bit) for bit in range(elements.bit_length() - 1)),
    )  # fmt: skip


@cache
def accumulator(rows: int, columns: int, bits: int) -> FragmentLayout:
    """C or D: two neighbouring columns in each lane, in one register (f16) or two, then the second eight rows."""
    down: list[Step] = [(8, 0)][: rows // 16]
    lane: tuple[Step, ...] = ((0, 2), (0, 4), *_ROW_STEPS)
    pair: Step = (0, 1)
    if bits == 16:
        return FragmentLayout(rows, columns, bits, 32, lane, tuple(down), (pair,))
    return FragmentLayout(rows, columns, bits, bits, lane, (pair, *down), ())


@cache
def _quad_pair_fragment(matrix: str, element: str, layouts: tuple[str, str]) -> FragmentLayout:
    """Volta's m8n8k4: lanes 4i to 4i + 3 and 4i + 16 to 4i + 19 make product i, the upper four its rows 4 to 7."""
    product: tuple[Step, ...] = ((8, 0), (16, 0))
    lower_half: Step = (4, 0)
    if matrix == "c":
        if element == "f16":
            return FragmentLayout(
                32, 8, 16, 32, ((1, 0), (2, 0), *product, lower_half), ((0, 2), (0, 4)), ((0, 1),)
            )  # fmt: skip
        return FragmentLayout(32, 8, 32, 32, ((1, 0), (0, 2), *product, lower_half), ((0, 1), (2, 0), (0, 4)), ())
    along_k = layouts[0] == "row" if matrix == "a" else layouts[1] == "col"  # a lane holds four of one row (column)
    lanes, held = (((1, 0), (2, 0)), ((0, 1), (0, 2))) if along_k else (((0, 1), (0, 2)), ((1, 0), (2, 0)))
    found = FragmentLayout(32, 4, 16, 32, (*lanes, *product, lower_half), held[1:], held[:1])
    return found if matrix == "a" else found.transposed()


_F16, _F32, _S32, _F64 = ("f16", "f16"), ("f32", "f32"), ("s32", "s32"), ("f64", "f64")
_ANY_LAYOUTS = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
_XOR_AND = (("xor", 75), ("and", 80))

SHAPES: tuple[MmaShape, ...] = (
    MmaShape("m8n8k4", 8, 8, 4, ("f16",), (_F16, ("f32", "f16"), _F32), 70, _ANY_LAYOUTS, matrices=4),
    MmaShape("m16n8k8", 16, 8, 8, ("f16",), (_F16, _F32), 75),
    MmaShape("m16n8k16", 16, 8, 16, ("f16",), (_F16, _F32), 80),
    MmaShape("m16n8k8", 16, 8, 8, ("bf16",), (_F32,), 80),
    MmaShape("m16n8k16", 16, 8, 16, ("bf16",), (_F32,), 80),
    MmaShape("m16n8k4", 16, 8, 4, ("tf32",), (_F32,), 80),
    MmaShape("m16n8k8", 16, 8, 8, ("tf32",), (_F32,), 80),
    MmaShape("m8n8k4", 8, 8, 4, ("f64",), (_F64,), 80),
    MmaShape("m16n8k4", 16, 8, 4, ("f64",), (_F64,), 90),
    MmaShape("m16n8k8", 16, 8, 8, ("f64",), (_F64,), 90),
    MmaShape("m16n8k16", 16, 8, 16, ("f64",), (_F64,), 90),
    MmaShape("m8n8k16", 8, 8, 16, ("s8", "u8"), (_S32,), 75),
    MmaShape("m16n8k16", 16, 8, 16, ("s8", "u8"), (_S32,), 80),
    MmaShape("m16n8k32", 16, 8, 32, ("s8", "u8"), (_S32,), 80),
    MmaShape("m8n8k32", 8, 8, 32, ("s4", "u4"), (_S32,), 75),
    MmaShape("m16n8k32", 16, 8, 32, ("s4", "u4"), (_S32,), 80),
    MmaShape("m16n8k64", 16, 8, 64, ("s4", "u4"), (_S32,), 80),
    MmaShape("m8n8k128", 8, 8, 128, ("b1",), (_S32,), 75, operations=_XOR_AND),
    MmaShape("m16n8k128", 16, 8, 128, ("b1",), (_S32,), 80, operations=(("xor", 80), ("and", 80))),
    MmaShape("m16n8k256", 16, 8, 256, ("b1",), (_S32,), 80, operations=(("xor", 80), ("and", 80))),
    MmaShape("m16n8k16", 16, 8, 16, ("e4m3", "e5m2"), (_F16, _F32), 89),
    MmaShape("m16n8k32", 16, 8, 32, ("e4m3", "e5m2"), (_F16, _F32), 89),
    MmaShape("m16n8k32", 16, 8, 32, SMALL_FLOATS, (_F16, _F32), 120, kind="f8f6f4"),
    MmaShape("m16n8k32", 16, 8, 32, SMALL_FLOATS, (_F32,), 120, kind="mxf8f6f4", scales=(("1X", "ue8m0"),)),
    MmaShape("m16n8k64", 16, 8, 64, ("e2m1",), (_F32,), 120, kind="mxf4", scales=(("2X", "ue8m0"),)),
    MmaShape(
        "m16n8k64", 16, 8, 64, ("e2m1",), (_F32,), 120, kind="mxf4nvf4",
        scales=(("2X", "ue8m0"), ("4X", "ue4m3")),
    ),
)  # fmt: skip
"""Every shape and type, as NVRTC 13.0 takes them. Those with a kind are for sm_120a and its family alone."""

NAMES = tuple(sorted({shape.name for shape in SHAPES}))

_BY_NAME = {(shape.name, element, shape.kind): shape for shape in SHAPES for element in shape.types}


def find(name: str, left: str, right: str | None = None, kind: str = "") -> MmaShape | None:
    """The shape called ``name`` that multiplies A of type ``left`` by B of type ``right`` (by default the same)."""
    found = _BY_NAME.get((name, left, kind))
    return found if found is not None and (right or left) in found.types else None


def type_lists(shape: MmaShape) -> Iterator[tuple[str, str, str, str]]:
    """Every legal combination of the types of D, A, B and C."""
    for result, addend in shape.accumulators:
        for left in shape.types:
            for right in shape.types:
                yield result, left, right, addend
