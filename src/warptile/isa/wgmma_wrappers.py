"""C++ wrappers of ``wgmma`` instructions, written into each translation unit that uses them: there are thousands.

They specialise the templates of ``kernels/ptx/wgmma.cuh``.
"""

from __future__ import annotations

from warptile.isa import wgmma
from warptile.isa.wrappers import ELEMENTS, _lines

ACCUMULATORS = {"f16": "__half", "f32": "float", "s32": "int"}
"""C++ name that says how sums are kept, by the type of D."""

REGISTERS = {"f16": ("unsigned", "r"), "f32": ("float", "f"), "s32": ("int", "r")}
"""C++ type of a register of D, and its constraint in asm."""


SATURATED = ".satfinite"
"""Behind the name of an instruction whose integer sums stop at int32's ends."""


def wrapper(name: str) -> str:
    """The C++ of one instruction, such as ``wgmma.m64n256k16.f32.f16``.

    Args:
        name: as `warptile.isa.wgmma.by_name` has it, both operands of one type; maybe with `SATURATED` behind it.

    Raises:
        KeyError: there is no such instruction.
        ValueError: its sums cannot saturate.
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
    opcode = shape.opcode(types) + SATURATED * saturate
    accumulator = "saturating_int" if saturate else ACCUMULATORS[result]
    template = "SparseWgmma" if shape.sparse else "Wgmma"
    operands = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    inputs = ['"l"(a)', '"l"(b)', '"r"(add)']
    sources = f"%{count}, %{count + 1}"
    parameters = f"{register} (&c)[{count}], unsigned long long a, unsigned long long b, "
    if shape.sparse:
        inputs += ['"r"(metadata)', '"n"(SELECTOR)']
        sources += f", %{count + 3}, %{count + 4}"
        parameters += "unsigned metadata, "
    immediates = ", 1, 1" if shape.family.negatable else ""
    if shape.family.transposable:
        first = count + len(inputs)
        immediates += f", %{first}, %{first + 1}"
        inputs += ['"n"(A_LINES_M)', '"n"(B_LINES_N)']
    lines = [
        f'            "{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{count + 2}, 0;\\n{opcode} "',
        *(f'            "{part}"' for part in _pieces(operands)),
        f'            ", {sources}, adds{immediates};\\n}}"',
        *_lines("            : ", (f'"+{constraint}"(c[{i}])' for i in range(count)), ""),
        *_lines("            : ", inputs, ");"),
    ]
    arguments = "int SELECTOR, bool A_LINES_M, bool B_LINES_N" if shape.sparse else "bool A_LINES_M, bool B_LINES_N"
    check = ""
    if not shape.family.transposable:
        check = '        static_assert(!A_LINES_M && !B_LINES_N, "lines along K, for elements other than 16 bits");\n'
    body = "\n".join(lines)
    return (
        f"namespace warptile {{\n"
        f"template <>\nstruct {template}<{ELEMENTS[left]}, {accumulator}, {shape.n}> {{\n"
        f"    using REGISTER = {register};\n"
        f"    static constexpr int REGISTERS = {count};\n"
        f"    template <{arguments}>\n"
        f"    static __device__ __forceinline__ void multiply({parameters}int add) {{\n{check}"
        f"        asm volatile(\n{body}\n    }}\n}};\n}}  // namespace warptile\n"
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
