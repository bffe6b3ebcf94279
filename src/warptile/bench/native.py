"""Assembles every tensor-core instruction for every architecture and counts what machine code it becomes.

``python -m warptile.bench.native`` writes `warptile.isa.native`'s table. It needs NVRTC and nvdisasm and no GPU. Each
instruction stands alone in a kernel that loads its registers from fixed addresses and stores the result, so that any
instruction beyond those of loading and storing is part of how the multiplication is made.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from warptile.compile import compile_source, compiler_version, disassemble
from warptile.errors import CompileError
from warptile.isa import native
from warptile.isa.catalogue import Multiplication, multiplications
from warptile.isa.native import Outcome
from warptile.source import Source

_MOVING = re.compile(r"(?:U?LDC?U?|LDG|STG|U?MOV|IMAD\.MOV|CS2R|U?IADD3|EXIT|BRA|NOP)\b")
"""Machine instructions of loading, storing and moving registers, and of their addresses."""

_TENSOR = re.compile(r"[A-Z]{1,2}MMA\b")
_REGISTERS = {"f32": ("float", "f"), "f64": ("double", "d")}
_REASON = re.compile(r"ptxas[^\n]*error\s*:\s*(?P<text>[^\n]*)")


def kernel(name: str, instruction: Multiplication, capability: int) -> str:
    """CUDA C++ of a kernel that runs ``instruction`` once."""
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


def _kernels(disassembly: str) -> dict[str, Counter[str]]:
    """How often each machine instruction stands in each kernel, by the kernel's name."""
    found: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    for line in disassembly.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            current = found.setdefault(section[1], Counter())
        elif statement := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            current[statement[1]] += 1
    return found


def _outcome(counted: Counter[str]) -> Outcome:
    tensor = {name: n for name, n in sorted(counted.items()) if _TENSOR.match(name)}
    other: Counter[str] = Counter()
    for name, n in counted.items():
        if name not in tensor and not _MOVING.match(name):
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
        if each.capability > capability or (each.capability >= native.FAMILY_SPECIFIC):
            reason = _refusal(each, arch, capability)
        if reason is None:
            taken.append(each)
        else:
            yield each, Outcome({}, {}, reason)
    if taken:
        text = "".join(kernel(f"k{i}", each, capability) for i, each in enumerate(taken))
        compiled = compile_source(Source(text, "k0", may_spill=True), arch, cache=None)
        found = _kernels(disassemble(compiled.cubin))
        for i, each in enumerate(taken):
            yield each, _outcome(found[f"k{i}"])


def _refusal(instruction: Multiplication, arch: str, capability: int) -> str | None:
    """Why the assembler does not take it, or None."""
    try:
        compile_source(Source(kernel("k0", instruction, capability), "k0", may_spill=True), arch, cache=None)
    except CompileError as error:
        found = _REASON.search(error.log)
        return found["text"].strip() if found else str(error)
    return None


def main() -> int:
    """Write the table."""
    table = {arch: dict(assemble(arch, multiplications())) for arch in native.ARCHITECTURES}
    native.FILE.write_text(native.to_json(compiler_version(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
