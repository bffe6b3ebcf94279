"""C++ wrappers of ``wgmma`` instructions, written into each translation unit that uses them: there are thousands.

They specialise the templates of ``kernels/ptx/wgmma.cuh``.
"""

from __future__ import annotations

from functools import lru_cache

from warptile.isa import wgmma
from warptile.isa.wrappers.mma import ELEMENTS, _lines

ACCUMULATORS = {"f16": "__half", "f32": "float", "s32": "int"}
"""C++ name of the accumulator, by the type of D."""

REGISTERS = {"f16": ("unsigned", "r"), "f32": ("float", "f"), "s32": ("int", "r")}
"""C++ type of a register of D, and its constraint in asm."""


FRAGMENT_REGISTERS = 4
"""Registers of A in each lane, whatever the type: 16 rows of 32 bytes for a warp."""

SATURATED = ".satfinite"
"""Suffix of the name of an instruction whose integer accumulators saturate."""


@lru_cache(maxsize=256)
def wrapper(name: str) -> str:
    """The C++ of one instruction, such as ``wgmma.m64n256k16.f32.f16``.

    Args:
        name: as `warptile.isa.wgmma.by_name` has it, both operands of one type; maybe with `SATURATED` behind it.

    Raises:
        KeyError: there is no such instruction.
        ValueError: its accumulators cannot saturate.
    """
    saturate = name.endswith(SATURATED)
    shape, types = wgmma.by_name()[name.removesuffix(SATURATED)]
    result, left, right = types
    if left != right:
        raise ValueError(f"{name}: A and B of one type")
    if saturate and not shape.family.saturates:
        raise ValueError(f"{name} does not saturate")
    register, constraint = REGISTERS[result]
    count = shape.registers(result)
    accumulator = "saturating_int" if saturate else ACCUMULATORS[result]
    template = "SparseWgmma" if shape.sparse else "Wgmma"
    opcode = shape.opcode(types) + SATURATED * saturate
    methods = [_method(shape, opcode, count, register, constraint, fragments=False)]
    if shape.family.bits >= 16 and not shape.sparse:
        methods.append(_method(shape, opcode, count, register, constraint, fragments=True))
    body = "".join(methods)
    return (
        f"namespace warptile {{\n"
        f"template <>\nstruct {template}<{ELEMENTS[left]}, {accumulator}, {shape.n}> {{\n"
        f"    using REGISTER = {register};\n"
        f"    static constexpr int REGISTERS = {count};\n"
        f"{body}}};\n}}  // namespace warptile\n"
    )


def _method(
    shape: wgmma.GroupShape, opcode: str, count: int, register: str, constraint: str, *, fragments: bool
) -> str:
    """The function that issues the instruction: A in shared memory, or its fragments in registers."""
    operands = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    parts = FRAGMENT_REGISTERS if fragments else 1
    inputs = [f'"r"(a[{i}])' for i in range(parts)] if fragments else ['"l"(a)']
    inputs += ['"l"(b)', '"r"(add)']
    a = ", ".join(f"%{count + i}" for i in range(parts))
    sources = f"{{{a}}}, %{count + parts}" if fragments else f"{a}, %{count + parts}"
    parameters = "const unsigned (&a)[4], " if fragments else "unsigned long long a, "
    parameters = f"{register} (&c)[{count}], {parameters}unsigned long long b, "
    if shape.sparse:
        inputs += ['"r"(metadata)', '"n"(SELECTOR)']
        sources += f", %{count + 3}, %{count + 4}"
        parameters += "unsigned metadata, "
    immediates = ", 1, 1" if shape.family.negatable else ""
    if shape.family.transposable:
        lines_across = ["B_LINES_N"] if fragments else ["A_LINES_M", "B_LINES_N"]
        immediates += "".join(f", %{count + len(inputs) + i}" for i in range(len(lines_across)))
        inputs += [f'"n"({each})' for each in lines_across]
    lines = [
        f'            "{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{count + parts + 1}, 0;\\n{opcode} "',
        *(f'            "{part}"' for part in _pieces(operands)),
        f'            ", {sources}, adds{immediates};\\n}}"',
        *_lines("            : ", (f'"+{constraint}"(c[{i}])' for i in range(count)), ""),
        *_lines("            : ", inputs, ");"),
    ]
    arguments = "int SELECTOR, bool A_LINES_M, bool B_LINES_N" if shape.sparse else "bool A_LINES_M, bool B_LINES_N"
    check = ""
    if not shape.family.transposable:
        check = '        static_assert(!A_LINES_M && !B_LINES_N, "lines along K, for elements other than 16 bits");\n'
    elif fragments:
        check = '        static_assert(!A_LINES_M, "fragments are K-major");\n'
    body = "\n".join(lines)
    return (
        f"    template <{arguments}>\n"
        f"    static __device__ __forceinline__ void mma_async({parameters}int add) {{\n{check}"
        f"        asm volatile(\n{body}\n    }}\n"
    )


def _pieces(text: str, width: int = 100) -> list[str]:
    """``text`` cut at spaces into pieces of at most ``width`` characters."""
    pieces = [""]
    for word in text.split(" "):
        if len(pieces[-1]) + len(word) >= width:
            pieces.append("")
        pieces[-1] += word + " "
    pieces[-1] = pieces[-1][:-1]
    return pieces
