"""The WMMA tables against machine code: every load, store and multiplication, compiled for three generations."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from covering import alternating, few
from machine_code import Trace, kernels
from warptile.arch import arch as find_arch
from warptile.codegen import headers
from warptile.codegen.nvrtc import compile_source, disassemble
from warptile.codegen.translation_unit import Source
from warptile.isa import wmma
from warptile.isa.fragments import coordinates

pytestmark = pytest.mark.skipif(
    headers.program("nvdisasm") is None, reason="nvdisasm is not installed (the extra warptile[sass] adds it)"
)

LEADING_DIMENSION = 1024
C_TYPE = {"f32": ("f", "float"), "f64": ("d", "double")}


def transfers(capability):
    """Every (shape, matrix, element, layout, space, action) that the architecture takes; u8 and u4 are as s8 and s4."""
    seen = set()
    for shape in wmma.SHAPES:
        if shape.capability > capability or shape.type in ("u8", "u4"):
            continue
        for space in ("shared", "global", "generic"):
            for matrix, position in (("a", 0), ("b", 1)):
                for layout in sorted({pair[position] for pair in shape.layouts}):
                    yield shape, matrix, shape.type, layout, space, "load"
            for element in shape.accumulators:
                for layout in ("row", "col"):
                    for action in ("load", "store"):
                        if (shape.name, element, layout, space, action) not in seen:
                            seen.add((shape.name, element, layout, space, action))
                            yield shape, "c", element, layout, space, action


def transfer_kernel(name, shape, matrix, element, layout, space, action, capability):
    count = shape.fragment(matrix, element, capability).registers
    constraint, c_type = C_TYPE.get(element, ("r", "unsigned"))
    qualifier = {"generic": ""}.get(space, f".{space}")
    tail = f"{layout}.{shape.name}{qualifier}.{element}"
    place = {
        "shared": "__cvta_generic_to_shared(tile)", "global": "__cvta_generic_to_global(p)", "generic": "(size_t)p"
    }[space]  # fmt: skip
    lines = [
        f'extern "C" __global__ void {name}(char* p, int ld, {c_type}* o) {{',
        "__shared__ __align__(128) char tile[16384];" if space == "shared" else "",
        f"{c_type} v[{count}]; o += threadIdx.x * {count}; size_t a = {place};",
    ]
    dump = f"for (int i = 0; i < {count}; i++)"
    if action == "load":
        out = ", ".join(f"%{i}" for i in range(count))
        outputs = ", ".join(f'"={constraint}"(v[{i}])' for i in range(count))
        lines += [
            f'asm volatile("wmma.load.{matrix}.sync.aligned.{tail} {{{out}}}, [%{count}], %{count + 1};"',
            f': {outputs} : "l"(a), "r"(ld)); {dump} o[i] = v[i]; }}',
        ]
    else:
        given = ", ".join(f"%{i + 2}" for i in range(count))
        inputs = ", ".join(f'"{constraint}"(v[{i}])' for i in range(count))
        lines += [
            f'{dump} v[i] = o[i]; asm volatile("wmma.store.d.sync.aligned.{tail} [%0], {{{given}}}, %1;"',
            f':: "l"(a), "r"(ld), {inputs} : "memory"); }}',
        ]
    return "\n".join(lines)


def instructions_of(text, arch):
    kernel = compile_source(Source(text, "k0", may_spill=True), arch)
    return kernels(disassemble(kernel.cubin))


def expected_requests(case, capability):
    shape, matrix, element, layout, space, action = case
    pitch = LEADING_DIMENSION * wmma.ELEMENT_BITS[element] // 8
    found = Counter()
    for request in wmma.access(shape, matrix, element, layout, shared=space == "shared", capability=capability):
        bits = wmma.ELEMENT_BITS[element]
        places = tuple(s * pitch + f * bits // 8 for s, f in zip(request.slow, request.fast, strict=True))
        if request.kind == "ldmatrix":
            found["LDSM", len(request.registers), request.transposed, places] += 1
        else:
            found["ST" if action == "store" else "LD", request.bytes_per_lane, False, places] += 1
    return found


def expected_bytes(case, capability):
    """For each lane, register and byte of the fragment, the byte of the tile that it holds."""
    shape, matrix, element, layout, _, _ = case
    bits = wmma.ELEMENT_BITS[element]
    fragment = shape.fragment(matrix, element, capability)
    places = coordinates(fragment)
    slow, fast = (places[..., 0], places[..., 1]) if layout == "row" else (places[..., 1], places[..., 0])
    starts = (slow * LEADING_DIMENSION + fast) * bits // 8
    if bits >= 8:
        starts = starts[..., None] + np.arange(bits // 8)
    else:
        starts = starts[..., :: 8 // bits]
    return starts.reshape(32, -1)


def traced_bytes(trace, case, capability):
    shape, matrix, element, _, _, action = case
    size = shape.fragment(matrix, element, capability).bytes
    held = np.full((32, size), -9)
    for where, offsets, content in trace.stores:
        for lane in range(32):
            if action == "load" and where == "registers":
                start = offsets[lane] - lane * size
                held[lane, start : start + content.shape[1]] = content[lane]
            elif action == "store" and where == "tile":
                held[content[lane] // size, content[lane] % size] = offsets[lane] + np.arange(content.shape[1])
    return held


@pytest.mark.parametrize("arch", few(["sm_75", "sm_80", "sm_90a"], 2))
def test_loads_and_stores_are_those_of_the_machine_code(arch):
    capability = find_arch(arch).capability
    every = list(transfers(capability))
    assert len(every) > 200
    cases = {f"k{i}": case for i, case in enumerate(alternating(every))}
    text = "\n".join(transfer_kernel(name, *case, capability) for name, case in cases.items())
    wrong = []
    for name, instructions in instructions_of(text, arch).items():
        case = cases[name]
        trace = Trace(instructions, capability, LEADING_DIMENSION)
        made = Counter((kind, size, flag, tuple(places.tolist())) for kind, size, flag, places in trace.requests)
        said = (case[0].name, *case[1:])
        if made != expected_requests(case, capability):
            wrong.append((*said, "requests"))
        if (traced_bytes(trace, case, capability) != expected_bytes(case, capability)).any():
            wrong.append((*said, "fragment"))
    assert not wrong


def multiplication_kernel(name, shape, accumulator, operation, capability):
    # B's fragment is as large as A's or not; registers come from memory so that nothing is folded away.
    sides = {m: shape.fragment(m, shape.type, capability) for m in "ab"}
    sides["c"] = sides["d"] = shape.fragment("c", accumulator, capability)
    kinds = {m: C_TYPE.get("f64" if shape.type == "f64" else "", ("r", "unsigned")) for m in "ab"}
    kinds["c"] = kinds["d"] = C_TYPE.get(accumulator, ("r", "unsigned"))
    arguments = ", ".join(f"{kinds[m][1]}* {m}" for m in "abcd")
    lines = [f'extern "C" __global__ void {name}({arguments}) {{ int t = threadIdx.x;']
    for m in "abcd":
        count = sides[m].registers
        lines.append(f"{kinds[m][1]} r{m}[{count}];")
        if m != "d":
            lines.append(f"for (int i = 0; i < {count}; i++) r{m}[i] = {m}[t * {count} + i];")
    groups, number = [], 0
    for m in "dabc":
        groups.append("{" + ", ".join(f"%{number + i}" for i in range(sides[m].registers)) + "}")
        number += sides[m].registers
    types = (
        f"{accumulator}.{accumulator}"
        if shape.type == "f16"
        else f"{accumulator}.{shape.type}.{shape.type}.{accumulator}"
    )
    bit = f".{operation}.popc" if operation else ""
    outputs = ", ".join(f'"={kinds["d"][0]}"(rd[{i}])' for i in range(sides["d"].registers))
    inputs = ", ".join(f'"{kinds[m][0]}"(r{m}[{i}])' for m in "abc" for i in range(sides[m].registers))
    lines.append(
        f'asm volatile("wmma.mma{bit}.sync.aligned.row.col.{shape.name}.{types} {", ".join(groups)};"'
        f" : {outputs} : {inputs});"
    )
    count = sides["d"].registers
    lines.append(f"for (int i = 0; i < {count}; i++) d[t * {count} + i] = rd[i]; }}")
    return "\n".join(lines)


@pytest.mark.parametrize("arch", few(["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"], 2))
def test_multiplications_become_the_instructions_in_the_table(arch):
    capability = find_arch(arch).capability
    cases = []
    for shape in wmma.SHAPES:
        if shape.capability <= capability:
            for operation, since in shape.operations or ((None, 0),):
                if since <= capability:
                    cases += [(shape, accumulator, operation) for accumulator in shape.accumulators]
    text = "\n".join(multiplication_kernel(f"k{i}", *case, capability) for i, case in enumerate(cases))
    code = instructions_of(text, arch)
    for i, (shape, _, operation) in enumerate(cases):
        names = [re.sub(r"\.(F32|F16|[SU][84]|XOR|AND|POPC)\b", "", line.split()[0]) for line in code[f"k{i}"]]
        made = Counter(name for name in names if re.match(r"[HIBD]MMA\.", name))
        assert made == {shape.on(capability).instruction: wmma.native_count(shape, capability, operation)}, shape
