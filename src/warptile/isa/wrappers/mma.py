"""Writes ``kernels/ptx/mma.cuh``, one C++ wrapper for each instruction, from `warptile.isa.mma` and `.sparse`.

``python -m warptile.isa.wrappers.mma --write`` after a change of those tables; a test compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warptile.isa import mma, mma_sp
from warptile.isa.fragments import FragmentLayout
from warptile.isa.machine_code import FAMILY_SPECIFIC

FILE = Path(__file__).resolve().parents[2] / "kernels" / "ptx" / "mma.cuh"

ELEMENTS = {
    "f16": "__half", "bf16": "__nv_bfloat16", "tf32": "float", "f64": "double", "s8": "signed char",
    "u8": "unsigned char", "s4": "int4_packed", "u4": "uint4_packed", "b1": "bit_packed", "e4m3": "float8_e4m3",
    "e5m2": "float8_e5m2",
}  # fmt: skip
"""C++ names of element types; kernels/ptx/elements.cuh defines those that are warptile's own."""

_REGISTERS = {"f32": ("float", "f"), "f64": ("double", "d")}
"""C++ type of a register and its constraint in asm; ``unsigned`` and ``r`` where not listed."""

_WIDTH = 120

Shape = mma.MmaShape | mma_sp.SparseShape

_HEADER = """\
// mma.sync and mma.sp: one wrapper for each instruction whose A and B have the same type.
//
// Written by `python -m warptile.isa.wrappers.mma --write` from the tables in isa/mma.py and isa/mma_sp.py: change \
those.
// PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp". m8n8k4 of f16, four products in one, has none.
#pragma once

#include "ptx/elements.cuh"

namespace warptile {

// What a lane holds of A, of B, and of C, which is also the result: types and numbers of registers.
template <typename AB_, typename C_, int A_COUNT, int B_COUNT, int C_COUNT>
struct MmaRegisters {
    using AB = AB_;
    using C = C_;
    static constexpr int A_REGISTERS = A_COUNT, B_REGISTERS = B_COUNT, C_REGISTERS = C_COUNT;
};

// c += a * b, of FM x FK and FK x FN matrices (in elements) of a warp. ACCUMULATOR says how sums are kept: float,
// __half (two to a register), double, int, or for integers saturating_int. Bits are combined by AND, for xor_int by
// XOR.
template <typename ELEMENT, typename ACCUMULATOR, int FM, int FN, int FK>
struct Mma;

// The same with half of A left out: `metadata` says which half, of the lanes that SELECTOR selects.
template <typename ELEMENT, typename ACCUMULATOR, int FM, int FN, int FK, int SELECTOR>
struct SparseMma;
"""


@dataclass(frozen=True)
class Wrapper:
    """One wrapper.

    Attributes:
        element: C++ name of the type of A and B.
        accumulator: C++ name of the accumulator.
        shape: of the instruction.
        opcode: as PTX spells it.
        types: of D, A, B and C.
        capability: the first compute capability (times ten) that has it.
    """

    element: str
    accumulator: str
    shape: Shape
    opcode: str
    types: tuple[str, str, str, str]
    capability: int

    def fragment(self, matrix: str) -> FragmentLayout:
        """The layout of A, B or C."""
        return self.shape.fragment(matrix, self.types["cab".index(matrix)])

    @property
    def name(self) -> str:
        """The C++ type, without a selector."""
        template = "SparseMma" if self.is_sparse else "Mma"
        return f"{template}<{self.element}, {self.accumulator}, {self.shape.m}, {self.shape.n}, {self.shape.k}"

    @property
    def is_sparse(self) -> bool:
        """Whether it is one of mma.sp."""
        return isinstance(self.shape, mma_sp.SparseShape)


def _ways_to_add(shape: Shape) -> Iterator[tuple[str, str, dict[str, object], int]]:
    """C++ name of each accumulator, its PTX type, options of the opcode, and capability."""
    for result, addend in shape.accumulators:
        if result != addend:
            continue
        if isinstance(shape, mma.MmaShape) and shape.operations:
            for operation, capability in shape.operations:
                yield {"and": "int", "xor": "xor_int"}[operation], result, {"operation": operation}, capability
        else:
            name = {"f16": "__half", "f32": "float", "f64": "double", "s32": "int"}[result]
            yield name, result, {}, shape.capability
            if shape.saturates:
                yield "saturating_int", result, {"saturate": True}, shape.capability


def wrappers() -> tuple[Wrapper, ...]:
    """Every wrapper, those of mma.sync first."""
    found = []
    shapes: tuple[Shape, ...] = (*mma.SHAPES, *mma_sp.SHAPES)
    for shape in shapes:
        if shape.capability >= FAMILY_SPECIFIC or getattr(shape, "matrices", 1) > 1:
            continue
        for element in shape.types:
            for name, sum_type, options, capability in _ways_to_add(shape):
                types = (sum_type, element, element, sum_type)
                opcode = shape.opcode(types, **options)  # type: ignore[arg-type]
                found.append(Wrapper(ELEMENTS[element], name, shape, opcode, types, capability))
    return tuple(found)


def _lines(start: str, items: Iterable[str], end: str) -> list[str]:
    """``start`` and then the items, separated by commas, on as many aligned lines as they need."""
    lines = [start]
    fresh = True
    for item in items:
        added = item if fresh else f", {item}"
        if len(lines[-1]) + len(added) + 1 > _WIDTH - len(end):
            lines[-1] += ","
            lines.append(" " * len(start) + item)
        else:
            lines[-1] += added
        fresh = False
    lines[-1] += end
    return lines


def _specialisation(wrapper: Wrapper) -> str:
    """The C++ of one wrapper."""
    a, b, c = (wrapper.fragment(matrix).registers for matrix in "abc")
    sum_type, sum_constraint = _REGISTERS.get(wrapper.types[0], ("unsigned", "r"))
    if wrapper.types[0] == "s32":
        sum_type = "int"
    factor, constraint = _REGISTERS.get(wrapper.types[1], ("unsigned", "r"))
    groups, first = [], 0
    for count in (c, a, b):
        groups.append("{" + ", ".join(f"%{first + i}" for i in range(count)) + "}")
        first += count
    operands = ", ".join([*groups, groups[0]])
    inputs = [f'"{constraint}"({name}[{i}])' for name, count in (("a", a), ("b", b)) for i in range(count)]
    head, parameters, check = "template <>", "C* c, const AB* a, const AB* b", ""
    name = f"{wrapper.name}>"
    if isinstance(wrapper.shape, mma_sp.SparseShape):
        head, name, parameters = (
            "template <int SELECTOR>",
            f"{wrapper.name}, SELECTOR>",
            f"{parameters}, unsigned metadata",
        )
        operands += f", %{first}, %{first + 1}"
        inputs += ['"r"(metadata)', '"n"(SELECTOR)']
        limit = wrapper.shape.selectors
        check = f'    static_assert(SELECTOR >= 0 && SELECTOR < {limit}, "selectors are below {limit}");\n'
    lines = [
        f'        asm("{wrapper.opcode} "',
        f'            "{operands};"',
        *_lines("            : ", (f'"+{sum_constraint}"(c[{i}])' for i in range(c)), ""),
        *_lines("            : ", inputs, ");"),
    ]
    body = "\n".join(lines)
    registers = f"MmaRegisters<{factor}, {sum_type}, {a}, {b}, {c}>"
    return (
        f"{head}\nstruct {name} : {registers} {{\n{check}"
        f"    static __device__ __forceinline__ void mma_sync({parameters}) {{\n{body}\n    }}\n}};\n"
    )


def header() -> str:
    """The whole of ``kernels/ptx/mma.cuh``."""
    parts = [_HEADER]
    by_capability: dict[int, list[Wrapper]] = {}
    for wrapper in wrappers():
        by_capability.setdefault(wrapper.capability, []).append(wrapper)
    for capability, found in sorted(by_capability.items()):
        inner = "".join(_specialisation(wrapper) for wrapper in found)
        parts.append(f"#if __CUDA_ARCH__ >= {10 * capability}\n{inner}#endif\n")
    return "\n".join([*parts, "}  // namespace warptile\n"])


def main(arguments: list[str] | None = None) -> int:
    """Print the header, or write it where it belongs."""
    parser = argparse.ArgumentParser(prog="python -m warptile.isa.wrappers.mma", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} instead of printing it")
    if parser.parse_args(arguments).write:
        FILE.write_text(header(), "utf-8")
    else:
        sys.stdout.write(header())
    return 0


if __name__ == "__main__":
    sys.exit(main())
