"""All tensor-core multiplications by name: what ``warptile isa`` lists and draws, and what is assembled to see SASS.

Those of four warps, all of which `warptile.isa.wgmma` names, are here with one value of n for all.

A name is the family, the shape, a kind if there is one, the type of D, that of A, that of B or C where they differ, and
what else tells instructions apart: ``mma.m16n8k16.f32.f16``, ``mma.m16n8k32.s32.s8.u8``, ``mma.m8n8k128.s32.b1.xor``,
``mma.sp.m16n8k32.f32.f16``, ``wmma.m16n16k16.f32.f16``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from warptile.isa import bulk_copy, mma, mma_sp, synchronization, wgmma, wmma
from warptile.isa.forms import Form
from warptile.isa.fragments import FragmentLayout
from warptile.isa.mma import ROW_COLUMN

FAMILIES = ("mma", "mma.sp", "wmma", "wgmma", "wgmma.sp")

Shape = mma.MmaShape | mma_sp.SparseShape | wmma.WmmaShape | wgmma.GroupShape

NEWEST_COMMON = 90
"""The capability (times ten) whose WMMA fragments are shown unless another is asked for."""


@dataclass(frozen=True)
class Multiplication:
    """One instruction.

    Attributes:
        name: as warptile calls it.
        family: one of `FAMILIES`.
        shape: its row of `warptile.isa.mma`, `warptile.isa.mma_sp`, `warptile.isa.wmma` or `warptile.isa.wgmma`.
        types: of D, A, B and C.
        opcode: as PTX spells it.
        capability: the first compute capability (times ten) that takes it, by the PTX ISA.
        layouts: of A and B.
        scaled: it takes block scales.
        tags: what else is in the name: the kind, a bit operation, the scales.
        only: the one architecture that takes it, by the PTX ISA; "" if later ones do too.
    """

    name: str
    family: str
    shape: Shape
    types: tuple[str, str, str, str]
    opcode: str
    capability: int
    layouts: tuple[str, str] = ROW_COLUMN
    scaled: bool = False
    tags: tuple[str, ...] = ()
    only: str = ""

    def fragment(self, matrix: str, capability: int = NEWEST_COMMON) -> FragmentLayout:
        """The layout of ``"a"``, ``"b"``, ``"c"`` or ``"d"``; of mma.sp, A is the compressed one.

        Of wgmma: what a warp holds of A, and of every eight columns of C and D.

        Raises:
            ValueError: B of wgmma, which lies in shared memory.
        """
        element = self.types["dabc".index(matrix)]
        place = "c" if matrix == "d" else matrix
        if isinstance(self.shape, wgmma.GroupShape):
            if matrix == "b":
                raise ValueError(f"B of {self.name} has no fragment: it lies in shared memory")
            rows = wgmma.ROWS // wgmma.WARPS
            return self.shape.fragment() if matrix == "a" else mma.accumulator(rows, 8, mma.ELEMENT_BITS[element])
        if isinstance(self.shape, wmma.WmmaShape):
            return self.shape.fragment(place, element, max(capability, self.shape.capability))
        if isinstance(self.shape, mma.MmaShape):
            return self.shape.fragment(place, element, self.layouts)
        return self.shape.fragment(place, element)


def _name(family: str, shape: Shape, types: tuple[str, str, str, str], *rest: str) -> str:
    result, left, right, addend = types
    parts = [family, shape.name, getattr(shape, "kind", ""), result, left, right if right != left else ""]
    parts += ["c" + addend if addend != result else "", *rest]
    return ".".join(part for part in parts if part)


def _tags(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def _of_mma(shape: mma.MmaShape) -> Iterator[Multiplication]:
    for types in mma.type_lists(shape):
        for layouts in shape.layouts:
            told = layouts if layouts != ROW_COLUMN else ()
            for operation, since in shape.operations or (("", shape.capability),):
                for scale in shape.scales or (None,):
                    opcode = shape.opcode(types, layouts=layouts, operation=operation, scale=scale)
                    name = _name("mma", shape, types, *told, operation, *(scale or ()))
                    tags = _tags(shape.kind, operation, *(scale or ()))
                    yield Multiplication(name, "mma", shape, types, opcode, since, layouts, scale is not None, tags)


def _of_sparse(shape: mma_sp.SparseShape) -> Iterator[Multiplication]:
    for types in mma_sp.type_lists(shape):
        for scale in shape.scales or (None,):
            name = _name("mma.sp", shape, types, *(scale or ()))
            opcode = shape.opcode(types, scale=scale)
            tags = _tags(shape.kind, *(scale or ()))
            yield Multiplication(
                name, "mma.sp", shape, types, opcode, shape.capability, scaled=scale is not None, tags=tags
            )


def _of_wmma(shape: wmma.WmmaShape) -> Iterator[Multiplication]:
    for result in shape.accumulators:
        for addend in shape.accumulators:
            for operation, since in shape.operations or (("", shape.capability),):
                types = (result, shape.type, shape.type, addend)
                spelled = (result, addend) if shape.type == "f16" else types
                bits = f".{operation}.popc" if operation else ""
                opcode = f"wmma.mma{bits}.sync.aligned.row.col.{shape.name}.{'.'.join(spelled)}"
                name = _name("wmma", shape, types, operation)
                yield Multiplication(name, "wmma", shape, types, opcode, since, tags=_tags(operation))


@cache
def multiplications() -> tuple[Multiplication, ...]:
    """Every instruction: mma.sync, mma.sp, wmma.mma, in the order of their tables."""
    found: list[Multiplication] = []
    for dense in mma.SHAPES:
        found += _of_mma(dense)
    for half in mma_sp.SHAPES:
        found += _of_sparse(half)
    for warp in wmma.SHAPES:
        found += _of_wmma(warp)
    return tuple(found)


GROUP_COLUMNS = 128
"""n of those wgmma instructions that stand for all of their types: another n changes one number in the machine code."""


@cache
def group_multiplications() -> tuple[Multiplication, ...]:
    """wgmma.mma_async of every type, dense and sparse, with n = `GROUP_COLUMNS`."""
    found = []
    for name, (shape, types) in wgmma.by_name().items():
        if shape.n == GROUP_COLUMNS:
            family = "wgmma.sp" if shape.sparse else "wgmma"
            all_types = (*types, types[0])
            opcode = shape.opcode(types)
            found.append(Multiplication(name, family, shape, all_types, opcode, wgmma.CAPABILITY, only=wgmma.ARCH))
    return tuple(sorted(found, key=lambda each: each.family))


@cache
def assembled() -> tuple[Multiplication, ...]:
    """What `warptile.isa.machine_code` has machine code of."""
    return (*multiplications(), *group_multiplications())


@cache
def by_name() -> dict[str, Multiplication]:
    """`multiplications` by name."""
    return {each.name: each for each in multiplications()}


FORMS: tuple[Form, ...] = (
    *bulk_copy.BULK, *bulk_copy.TENSOR, *bulk_copy.MAPS, *synchronization.MBARRIER, *synchronization.FENCES,
    *synchronization.CLUSTER, *synchronization.WARP,
)  # fmt: skip
"""Copies and synchronisation, by family."""
