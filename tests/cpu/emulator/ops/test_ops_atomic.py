"""`atom` and `red`: subnormals by type and space, NaN, vectors, and what ptxas refuses."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import exact_rounding as exact
from covering import covering
from emulation import run_cuda
from one_instruction import execute
from warptile.emulator import DEFAULT_CHECKS
from warptile.errors import IllegalAddress, MisalignedAccess, UnknownInstruction

QUIET = DEFAULT_CHECKS - {"races", "uninitialised", "writes"}
SIGN = 0x80000000
WORDS = [
    0, SIGN, 1, SIGN | 1, 0x400000, SIGN | 0x400000, 0x7FFFFF, 0x800000, SIGN | 0x800000, 0x800001, SIGN | 0x800001,
    0x3F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFF800001,
]  # fmt: skip
HALVES = {
    "f16": [0, 0x8000, 1, 0x8001, 0x3FF, 0x83FF, 0x400, 0x8400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFE01],
    "bf16": [0, 0x8000, 1, 0x8001, 0x7F, 0x807F, 0x80, 0x8080, 0x3F80, 0x7F7F, 0x7F80, 0xFF80, 0x7F81, 0xFFC1],
}


def pairs(words, dtype):
    old, given = zip(*itertools.product(words, repeat=2), strict=True)
    return np.array(old, dtype=dtype), np.array(given, dtype=dtype)


def f32_sum(a: int, b: int, *, flush: bool) -> int:
    """Bits of a + b, by exact fractions; with ``flush``, operands and result below 2**-126 are zeros of their sign."""

    def flushed(bits: int) -> int:
        return bits & SIGN if flush and not bits & 0x7F800000 else bits

    a, b = flushed(a), flushed(b)
    values = [float(np.uint32(bits).view(np.float32)) for bits in (a, b)]
    if any(np.isnan(values)) or (np.isinf(values).all() and a != b):
        return 0x7FFFFFFF
    if np.isinf(values).any():
        return a if np.isinf(values[0]) else b
    total = Fraction(values[0]) + Fraction(values[1])
    if total == 0:
        return SIGN if a & b & SIGN else 0
    with np.errstate(over="ignore"):
        # of two float32 a float64 keeps 53 bits, more than twice 24 and 2: rounding once more does no harm
        return flushed(int(np.float32(float(total)).view(np.uint32)))


def sums(place: str, old, given, *, opcode: str = "red"):
    """Each old word with its given one added by ``opcode`` in ``place``, and what `atom` returned."""
    n = len(old)
    returned = "%0" if opcode == "atom" else ""
    asm = {
        "global": f"{opcode}.global.add.f32 {returned}{',' if returned else ''} [%2], %1;",
        "generic": f"{opcode}.add.f32 {returned}{',' if returned else ''} [%2], %1;",
        "shared": f"{opcode}.shared.add.f32 {returned}{',' if returned else ''} [%2], %1;",
        "generic shared": f"{opcode}.add.f32 {returned}{',' if returned else ''} [%2], %1;",
    }[place]
    shared = "shared" in place
    where = "&s[i]" if shared else "&o[i]"
    address = f'"r"((unsigned)__cvta_generic_to_shared({where}))' if place == "shared" else f'"l"({where})'
    source = f"""__global__ void k(float* o, const float* given, float* before) {{
        __shared__ float s[{n}];
        int i = threadIdx.x;
        float r = 0;
        s[i] = o[i];
        asm volatile("{asm}" : "+f"(r) : "f"(given[i]), {address} : "memory");
        if ({int(shared)}) o[i] = s[i];
        before[i] = r;
      }}"""
    out, before = old.view(np.float32).copy(), np.zeros(n, np.float32)
    run_cuda(source, "k", [out, given.view(np.float32), before], block=n, outputs={0: True, 2: True}, checks=QUIET)
    return out.view(np.uint32), before.view(np.uint32)


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("place", ["global", "generic", "shared", "generic shared"])
def test_sums_of_f32_flush_subnormals_in_global_memory_alone(place, opcode) -> None:
    old, given = pairs(WORDS, np.uint32)
    found, before = sums(place, old, given, opcode=opcode)
    flush = "shared" not in place
    for a, b, got in zip(old.tolist(), given.tolist(), found.tolist(), strict=True):
        assert got == f32_sum(a, b, flush=flush), (hex(a), hex(b), hex(got))
    if opcode == "atom":  # as it was, not flushed
        np.testing.assert_array_equal(before, old)


def test_readings_of_an_h100() -> None:
    """Two of its answers for each place: 0x800001 - 0x800000 and 0x7fffff + 1."""
    old, given = np.array([0x800001, 0x7FFFFF], np.uint32), np.array([SIGN | 0x800000, 1], np.uint32)
    assert sums("global", old, given)[0].tolist() == [0, 0]
    assert sums("shared", old, given)[0].tolist() == [1, 0x800000]


def test_lanes_of_one_generic_atomic_in_both_spaces() -> None:
    """Lane 0 adds in global memory, lane 1 in shared memory: only the first flushes."""
    out = np.array([1, 1], np.uint32).view(np.float32)
    run_cuda("""__global__ void k(float* o) {
                  __shared__ float s;
                  int i = threadIdx.x;
                  if (i == 1) s = o[1];
                  float* p = i ? &s : o;
                  asm volatile("red.add.f32 [%0], %1;" :: "l"(p), "f"(__int_as_float(2)) : "memory");
                  if (i == 1) o[1] = s;
                }""", "k", [out], block=2)  # fmt: skip
    assert out.view(np.uint32).tolist() == [0, 3]


# -- vectors -----------------------------------------------------------------------------------------------------------

VECTORS = [
    (element, count, name)
    for element, counts in (("f32", (2, 4)), ("f16", (2, 4, 8)), ("bf16", (2, 4, 8)), ("f16x2", (2, 4)),
                            ("bf16x2", (2, 4)))
    for count in counts
    for name in ("add", "min", "max")
    if element != "f32" or name == "add"
]  # fmt: skip


def half_result(name: str, a: int, b: int, element: str) -> int:
    """Bits of one f16 or bf16 element afterwards, by exact arithmetic: a NaN is 0x7fff, -0 is less than +0."""
    values = [exact.decode(bits, element) for bits in (a, b)]
    if name == "add":
        return exact.added(*values, element)
    infinity = 0x7C00 if element == "f16" else 0x7F80
    numbers = [bits for bits in (a, b) if bits & 0x7FFF <= infinity]
    # in this order the bits of numbers rise with the number, -0 before +0
    ordered = sorted(numbers, key=lambda bits: 0xFFFF - bits if bits & 0x8000 else 0x8000 + bits)
    return 0x7FFF if not ordered else ordered[0 if name == "min" else -1]


def vector_source(opcode: str, text: str, element: str, count: int) -> str:
    letter, kind = {"f32": ("f", "float"), "f16": ("h", "short"), "bf16": ("h", "short")}.get(
        element, ("r", "unsigned")
    )
    shift = count if opcode == "atom" else 0
    given = ", ".join(f"%{shift + i}" for i in range(count))
    results = "{" + ", ".join(f"%{i}" for i in range(count)) + "}, " if opcode == "atom" else ""
    outputs = ", ".join(f'"={letter}"(r[{i}])' for i in range(count)) if opcode == "atom" else ""
    inputs = ", ".join(f'"{letter}"(g[{i}])' for i in range(count))
    return f"""__global__ void k({kind}* o, const {kind}* given, {kind}* before) {{
        {kind} r[{count}] = {{}};
        const {kind}* g = given + {count} * threadIdx.x;
        asm volatile("{opcode}.{text} {results}[%{shift + count}], {{{given}}};"
                     : {outputs} : {inputs}, "l"(o + {count} * threadIdx.x) : "memory");
        for (int i = 0; i < {count}; ++i) before[{count} * threadIdx.x + i] = r[i];
      }}"""


@pytest.mark.parametrize(
    ("element", "count", "name", "opcode"),
    [(*vector, opcode) for vector, opcode in covering(VECTORS, ["atom", "red"], pairs=())],
)
def test_each_element_of_a_vector_is_an_atomic_of_its_own(element, count, name, opcode) -> None:
    plain = element.removesuffix("x2")
    word = np.uint32 if element == "f32" else np.uint16
    old, given = pairs(WORDS[:16] if element == "f32" else [*HALVES[plain], 0x3C80, 0xC100], word)
    noftz = ".noftz" if element != "f32" else ""
    register = {"f32": np.float32, "f16": np.int16, "bf16": np.int16}.get(element, np.uint32)
    out, values = old.view(register).copy(), given.view(register)
    before = np.zeros_like(out)
    source = vector_source(opcode, f"global.{name}{noftz}.v{count}.{element}", element, count)
    run_cuda(source, "k", [out, values, before], block=len(out) // count, outputs={0: True, 2: True}, checks=QUIET)
    for a, b, got in zip(old.tolist(), given.tolist(), out.view(word).tolist(), strict=True):
        expected = f32_sum(a, b, flush=True) if element == "f32" else half_result(name, a, b, plain)
        assert got == expected, (hex(a), hex(b), hex(got), hex(expected))
    if opcode == "atom":
        np.testing.assert_array_equal(before.view(word), old)


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("global.v2.f32.add", "f32"),
        ("v2.add.f32.global.gpu.relaxed", "f32"),
        ("acq_rel.gpu.global.add.v2.f32", "f32"),
        ("global.v2.f16.add.noftz", "f16"),
    ],
)
def test_modifiers_in_any_order_that_ptxas_takes(text, element) -> None:
    kind = np.float32 if element == "f32" else np.float16
    register = np.float32 if element == "f32" else np.int16
    out, given = np.arange(64, dtype=kind), np.full(64, 0.5, kind)
    before = np.zeros(64, kind)
    run_cuda(vector_source("atom", text, element, 2), "k",
             [out.view(register), given.view(register), before.view(register)], outputs={0: True, 2: True})  # fmt: skip
    np.testing.assert_array_equal(out, np.arange(64) + kind(0.5))
    np.testing.assert_array_equal(before, np.arange(64))


def test_lanes_that_share_a_vector_add_one_after_the_other() -> None:
    out = np.zeros(4, np.float32)
    source = """__global__ void k(float* o) {
        float t = threadIdx.x;
        asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %2};" :: "l"(o), "f"(t), "f"(1.f) : "memory");
      }"""
    run_cuda(source, "k", [out], block=64)
    assert out.tolist() == [2016, 2016, 2016, 64]  # 0 + 1 + ... + 63, three times, and a one of each lane


def test_a_vector_lies_at_a_multiple_of_its_size() -> None:
    source = """__global__ void k(float* o) {
        asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(o + 2), "f"(1.f) : "memory");
      }"""
    with pytest.raises(MisalignedAccess, match="not a multiple of 16"):
        run_cuda(source, "k", [np.zeros(8, np.float32)], block=1)


def test_a_vector_in_shared_memory_is_no_global_address() -> None:
    source = """__global__ void k(float* o) {
        __shared__ float4 s;
        s = make_float4(0, 0, 0, 0);
        asm volatile("red.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(&s), "f"(1.f) : "memory");
        o[0] = s.x;
      }"""
    with pytest.raises(IllegalAddress):
        run_cuda(source, "k", [np.zeros(1, np.float32)], block=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("red.global.min.v2.f32 [p], {a, a};", "vectors of .f32 have .add alone"),
        ("red.global.add.v8.f32 [p], {a, a, a, a, a, a, a, a};", "vectors are sums"),
        ("red.shared.add.v2.f32 [p], {a, a};", "in global memory"),
        ("red.global.add.v2.u32 [p], {a, a};", "vectors are sums"),
        ("red.global.add.v8.noftz.f16x2 [p], {a, a, a, a, a, a, a, a};", "vectors are sums"),
        ("red.global.add.f16x2 [p], a;", "noftz"),
        ("red.global.add.noftz.f32 [p], a;", "noftz"),
        ("red.global.add.v4.f32 [p], {a, a};", "4 elements"),
    ],
)
def test_what_ptxas_refuses_is_unknown(text, why) -> None:
    with pytest.raises(UnknownInstruction, match=why):
        execute(text, "b32 d a, b64 p")
