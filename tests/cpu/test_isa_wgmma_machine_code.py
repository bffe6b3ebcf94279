"""Every family of wgmma as the assembler takes it: one tensor-core instruction each, as long as the tables say."""

import re

import pytest

from warptile.compile import compile_source, disassemble
from warptile.errors import CompileError
from warptile.isa import wgmma
from warptile.source import Source

MACHINE = {"f16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "e4m3": "QGMMA", "e5m2": "QGMMA", "s8": "IGMMA",
           "u8": "IGMMA", "b1": "BGMMA"}  # fmt: skip


def kernel(name, shape, types, *, from_registers, opcode=None):
    """A kernel with one product whose registers are all inputs and outputs."""
    count, family = shape.registers(types[0]), shape.family
    letter, kind = ("f", "float") if types[0] == "f32" else ("r", "unsigned")
    left = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if from_registers else f"%{count}"
    after = count + (4 if from_registers else 1)
    operands = ["{" + ", ".join(f"%{i}" for i in range(count)) + "}", left, f"%{after}"]
    operands += [f"%{after + 1}", "0"] if shape.sparse else []
    operands += ["q", *(["1", "-1"] if family.negatable else [])]
    operands += ["0", "1"][from_registers:] if family.transposable else []
    given = [f'"r"(m[{i}])' for i in range(4)] if from_registers else ['"l"(a)']
    given += ['"l"(b)', *(['"r"(m[4])'] if shape.sparse else [])]
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    return f"""
extern "C" __global__ void {name}({kind}* out, const unsigned* m, unsigned long long a, unsigned long long b) {{
  {kind} d[{count}];
  for (int i = 0; i < {count}; ++i) d[i] = out[threadIdx.x * {count} + i];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred q; setp.ne.b64 q, 1, 0;\\n"
    "{opcode or shape.opcode(types)} {", ".join(operands)}; }}" : {outputs} : {", ".join(given)});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = d[i];
}}
"""


@pytest.mark.parametrize("family", wgmma.FAMILIES, ids=lambda family: family.types[0])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_every_type_and_some_widths(family, is_sparse):
    if is_sparse and not family.sparse:
        pytest.skip("there is none")
    cases = [
        (wgmma.GroupShape(family, n, is_sparse), types, from_registers)
        for types in wgmma.type_lists(family)
        for n in (8, family.columns[5], 128)
        for from_registers in (False, True)
    ]
    text = "".join(
        kernel(f"k{i}", shape, types, from_registers=registers) for i, (shape, types, registers) in enumerate(cases)
    )
    found = {}
    for line in disassemble(
        compile_source(Source(text, "k0", may_spill=True), "sm_90a", cache=None).cubin
    ).splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            current = found.setdefault(section[1], [])
        elif made := re.search(r"\b([HQIB]GMMA)\.(?:SP\.)?(\d+x\d+x\d+)", line):
            current.append((made[1], made[2]))
    for i, (shape, types, _) in enumerate(cases):
        assert found[f"k{i}"] == [(MACHINE[types[1]], f"64x{shape.n}x{shape.k}")], (shape.name, types)


def test_widths_that_integers_lack():
    shape = wgmma.GroupShape(wgmma.FAMILIES[4], 48)
    for n in (40, 56):
        text = kernel("k", shape, ("s32", "s8", "s8"), from_registers=False).replace("m64n48", f"m64n{n}")
        with pytest.raises(CompileError):
            compile_source(Source(text, "k"), "sm_90a", cache=None)
