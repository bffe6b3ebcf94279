"""Assembles every tensor-core instruction for every architecture and counts what machine code it becomes.

``python -m warptile.bench.campaign.survey_machine_code`` writes `warptile.isa.machine_code`'s table. It needs NVRTC
and nvdisasm and no GPU. Each
instruction stands alone in a kernel that loads its registers from fixed addresses and stores the result, so that any
instruction beyond those of loading and storing is part of how the multiplication is made.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from warptile.codegen.nvrtc import compile_source, compiler_version, disassemble
from warptile.codegen.translation_unit import Source
from warptile.errors import CompileError
from warptile.isa import machine_code
from warptile.isa.catalogue import Multiplication, assembled
from warptile.isa.machine_code import Outcome
from warptile.isa.wgmma import GroupShape

MOVING = re.compile(r"(?:U?LDC?U?|LDG|STG|U?MOV|IMAD\.MOV|CS2R|R2UR|U?IADD3|EXIT|BRA|NOP|WARPGROUP)\b")
"""Machine instructions of loading, storing and moving registers, and of their addresses; WARPGROUP is the fence before
``wgmma`` and the wait behind it, which its kernel asks for."""

_TENSOR = re.compile(r"[A-Z]{1,2}MMA\b")
_REGISTERS = {"f32": ("float", "f"), "f64": ("double", "d")}
REASON = re.compile(r"ptxas[^\n]*error\s*:\s*(?P<text>[^\n]*)")
"""What the assembler says when it takes an instruction not."""


def kernel(name: str, instruction: Multiplication, capability: int) -> str:
    """CUDA C++ of a kernel that runs ``instruction`` once."""
    if isinstance(instruction.shape, GroupShape):
        return group_kernel(name, instruction.shape, instruction.types[0], instruction.opcode)
    counts = [instruction.fragment(matrix, capability).registers for matrix in "dabc"]
    kinds = [_REGISTERS.get(element, ("unsigned", "r")) for element in instruction.types]
    lines = [f'extern "C" __global__ void {name}(volatile char* p) {{']
    for matrix, count, (type_name, _) in zip("dabc", counts, kinds, strict=True):
        place = "dabc".index(matrix) * 1024
        loaded = (f"((volatile {type_name}*)(p + {place}))[{i}]" for i in range(count))
        lines.append(f"{type_name} {matrix}[{count}] = {{{', '.join(loaded) if matrix != 'd' else ''}}};")
    groups, first = [], 0
    for count in counts:
        groups.append("{" + ", ".join(f"%{first + i}" for i in range(count)) + "}")
        first += count
    more: list[str] = []
    if instruction.family == "mma.sp":
        groups += [f"%{first}", "0"]
        more.append("metadata")
    if instruction.scaled:
        scale = f"%{first + len(more)}"
        groups += [scale, "{0, 0}", scale, "{0, 0}"]
        more.append("scale")
    lines += [f"unsigned {word} = ((volatile unsigned*)(p + {4096 + 4 * i}))[0];" for i, word in enumerate(more)]
    outputs = ", ".join(f'"={kinds[0][1]}"(d[{i}])' for i in range(counts[0]))
    inputs = [
        f'"{kind}"({matrix}[{i}])'
        for matrix, count, (_, kind) in zip("abc", counts[1:], kinds[1:], strict=True)
        for i in range(count)
    ]
    inputs += [f'"r"({word})' for word in more]
    lines.append(f'asm volatile("{instruction.opcode} {", ".join(groups)};" : {outputs} : {", ".join(inputs)});')
    lines += [f"((volatile {kinds[0][0]}*)p)[{i}] = d[{i}];" for i in range(counts[0])]
    return "\n".join([*lines, "}\n"])


def group_kernel(name: str, shape: GroupShape, result: str, opcode: str, *, a_in_registers: bool = False) -> str:
    """CUDA C++ of a kernel that runs one ``wgmma.mma_async`` with its fence, its group and its wait.

    Args:
        name: of the kernel.
        shape: of the instruction.
        result: type of D.
        opcode: as PTX spells it.
        a_in_registers: A is no descriptor.
    """
    type_name, kind = _REGISTERS.get(result, ("unsigned", "r"))
    count = shape.registers(result)
    left = ["m[0]", "m[1]", "m[2]", "m[3]"] if a_in_registers else ["w[0]"]
    inputs = [*left, "w[1]", *(["m[4]"] if shape.sparse else [])]
    places = [f"%{count + i}" for i in range(len(inputs))]
    held = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    operands = [held, "{" + ", ".join(places[:4]) + "}" if a_in_registers else places[0], places[len(left)]]
    operands += [places[-1], "0"] if shape.sparse else []
    operands += ["q", *(["1", "1"] if shape.family.negatable else [])]
    operands += ["0"] * (2 - a_in_registers) if shape.family.transposable else []
    given = ", ".join(f'"{"l" if each[0] == "w" else "r"}"({each})' for each in inputs)
    outputs = ", ".join(f'"+{kind}"(d[{i}])' for i in range(count))
    loaded = [f"((volatile {type_name}*)p)[{i}]" for i in range(count)]
    words = [f"((volatile unsigned*)(p + 4096))[{i}]" for i in range(5)]
    return "\n".join([
        f'extern "C" __global__ void {name}(volatile char* p) {{',
        f"{type_name} d[{count}] = {{{', '.join(loaded)}}};",
        f"unsigned m[5] = {{{', '.join(words)}}};",
        "unsigned long long w[2] = {((volatile unsigned long long*)(p + 8192))[0], "
        "((volatile unsigned long long*)(p + 8192))[1]};",
        'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
        f'asm volatile("{{ .reg .pred q; setp.ne.b64 q, 1, 0; {opcode} {", ".join(operands)}; }}"',
        f"  : {outputs} : {given});",
        'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
        'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
        *(f"((volatile {type_name}*)p)[{i}] = d[{i}];" for i in range(count)),
        "}\n",
    ])  # fmt: skip


def instructions_of(disassembly: str) -> dict[str, list[str]]:
    """The names of the machine instructions of each kernel, in order, by the kernel's name."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in disassembly.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            current = found.setdefault(section[1], [])
        elif statement := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            current.append(statement[1])
    return found


def _outcome(names: Sequence[str]) -> Outcome:
    counted = Counter(names)
    tensor = {name: n for name, n in sorted(counted.items()) if _TENSOR.match(name)}
    other: Counter[str] = Counter()
    for name, n in counted.items():
        if name not in tensor and not MOVING.match(name):
            other[name.split(".")[0]] += n
    return Outcome(tensor, dict(sorted(other.items())))


def assemble(arch: str, instructions: Sequence[Multiplication]) -> Iterator[tuple[Multiplication, Outcome]]:
    """What each instruction becomes on ``arch``.

    Raises:
        UnsupportedError: nvdisasm is not installed.
    """
    capability = int(arch.strip("sm_af"))
    taken: list[Multiplication] = []
    for each in instructions:
        reason = None
        if (
            each.capability > capability
            or each.capability >= machine_code.FAMILY_SPECIFIC
            or each.only not in ("", arch)
        ):
            reason = _refusal(each, arch, capability)
        if reason is None:
            taken.append(each)
        else:
            yield each, Outcome({}, {}, reason)
    if taken:
        text = "".join(kernel(f"k{i}", each, capability) for i, each in enumerate(taken))
        compiled = compile_source(Source(text, "k0", may_spill=True), arch, cache=None)
        found = instructions_of(disassemble(compiled.cubin))
        for i, each in enumerate(taken):
            yield each, _outcome(found[f"k{i}"])


def _refusal(instruction: Multiplication, arch: str, capability: int) -> str | None:
    """Why the assembler does not take it, or None."""
    try:
        compile_source(Source(kernel("k0", instruction, capability), "k0", may_spill=True), arch, cache=None)
    except CompileError as error:
        said = [found["text"].strip() for found in REASON.finditer(error.log)]
        mnemonic = ".".join(instruction.opcode.split(".")[:2])
        return next((text for text in said if mnemonic in text), said[0] if said else str(error))
    return None


def main() -> int:
    """Write the table."""
    table = {arch: dict(assemble(arch, assembled())) for arch in machine_code.ARCHITECTURES}
    machine_code.FILE.write_text(machine_code.to_json(compiler_version(), table), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
