"""Claims about formats, accumulators, TF32, sparsity and tolerances."""

from __future__ import annotations

import math

import numpy as np

from warptile.arrays.sparse import LEGAL, sparsify
from warptile.bench.report.claims.fact import EMULATOR, HOST, LAYOUTS, Answer, Fact
from warptile.bench.report.claims.probes import reported, run
from warptile.dtypes import dtype
from warptile.isa.numerics import FORMATS

_HUNDRED = 0x5640_5640
"""Two halves of 100."""

_SUM_OF_16 = """
mov.b32 %r2, {a}; mov.b32 %r3, {a}; mov.b32 %r4, {a}; mov.b32 %r5, {a}; mov.b32 %r6, {a}; mov.b32 %r7, {a};
mov.b32 %r8, 0; mov.b32 %r9, 0; mov.f32 %f0, 0f00000000;
"""
_IN_F16 = (
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r8,%r9}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, {%r8,%r9};\n"
    "st.global.u32 [%rd1], %r8;"
)
_IN_F32 = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r2,%r3,%r4,%r5}, {%r6,%r7}, "
    "{%f0,%f0,%f0,%f0};\nst.global.f32 [%rd1], %f1;"
)

_ONE = 0x3F80_0000
_ONE_AND = _ONE + 0x1800
"""1 + 2^-11 + 2^-12 in f32: 1 when truncated to ten fraction bits, 1 + 2^-10 to the nearest."""

_TF32 = """
{convert}
mov.b32 %r3, {one}; mov.f32 %f0, 0f00000000;
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
    {{%f1,%f2,%f3,%f4}}, {{%r2,%r2,%r2,%r2}}, {{%r3,%r3}}, {{%f0,%f0,%f0,%f0}};
st.global.f32 [%rd1], %f1;"""


def _overflow() -> Answer:
    body = _SUM_OF_16.format(a=_HUNDRED)
    error = reported(body + _IN_F16)
    wide = run(body + _IN_F32)[1][:1].view(np.float32)[0]
    return Answer(f"16 products of 100 x 100: `{error}` in f16, {wide:,.0f} in f32",
                  error == "AccumulatorOverflow" and wide == 160_000)  # fmt: skip


def _multiplied(convert: str) -> float:
    """What the tensor core takes 1 + 2^-11 + 2^-12 for: the eighth part of its sum of eight."""
    words = run(_TF32.format(convert=convert, one=_ONE))[1]
    return float(words[:1].view(np.float32)[0]) / 8


def _tf32_values() -> tuple[float, float]:
    """The same of the operand as it is, and after a conversion."""
    converted = f"mov.b32 %r4, {_ONE_AND};\ncvt.rna.tf32.f32 %r2, %r4;"
    return _multiplied(f"mov.b32 %r2, {_ONE_AND};"), _multiplied(converted)


def _excess(value: float) -> str:
    return "1" if value == 1 else f"1 + 2^{math.log2(value - 1):.0f}"


def _truncates() -> Answer:
    bits, _ = _tf32_values()
    return Answer(f"1 + 2^-11 + 2^-12 is multiplied as {_excess(bits)}", bits == 1)


def _rounds() -> Answer:
    bits, converted = _tf32_values()
    return Answer(f"{_excess(bits)}; after `cvt.rna.tf32.f32` {_excess(converted)}", bits == converted)


def _formats() -> Answer:
    claimed = {"float16": 6.55e4, "bfloat16": 3.4e38, "float8_e4m3": 448.0, "float8_e5m2": 57344.0}
    found = {name: dtype(name).largest for name in claimed}
    bits = 1 + FORMATS["tf32"].exponent_bits + FORMATS["tf32"].fraction_bits
    close = all(abs(found[name] / value - 1) < 0.005 for name, value in claimed.items())
    value = ", ".join(f"{each:.5g}" for each in found.values())
    return Answer(f"{value}; tf32 has {bits} bits", close and bits == 19)


def _exactly_two() -> Answer:
    weights = np.zeros((1, 8), np.float16)
    weights[0, 1] = 3
    kept = sparsify(weights)
    same = bool(np.array_equal(kept.to_dense(), weights))
    return Answer(f"one nonzero of four, and none, are kept {'exactly' if same else 'wrongly'}", not same)


def _metadata() -> Answer:
    places = {(nibble & 3, nibble >> 2) for nibble in LEGAL}
    increasing = all(first < second for first, second in places)
    return Answer(f"{len(places)} legal nibbles, each two positions of 2 bits", len(places) == 6 and increasing)


def _wrong_by_t3(value: float, reference: float) -> bool:
    """The comparison of T3's benchmark: relative to the larger of the two."""
    return abs(value - reference) > 5e-2 * max(abs(value), abs(reference)) + 1e-3


def _tolerance() -> Answer:
    cases = {"1.04 for 1": (1.04, 1.0), "NaN": (math.nan, 1.0)}
    passed = [name for name, (value, reference) in cases.items() if not _wrong_by_t3(value, reference)]
    return Answer(f"accepts {' and '.join(passed)}", not passed)


FACTS = (
    Fact("T1", "f16 accumulators overflow where partial sums exceed 65504", "m16n8k16", EMULATOR, _overflow,
         "The emulator names the instruction; a GPU stores an infinity."),
    Fact("T1", "tensor cores truncate f32 operands to TF32", "mma.sync, m16n8k8", EMULATOR, _truncates,
         "The lowest 13 bits are not read, as captures from an H200 confirm ([numerics](numerics.md#the-evidence))."),
    Fact("T4", "tensor cores round f32 operands to TF32", "mma.sync, m16n8k8", EMULATOR, _rounds,
         "Rounding is an instruction of its own, or done by TMA; without it the error of an operand is up to 2^-10 "
         "instead of 2^-11."),
    Fact("T1, T4", "largest FP16 is 65504, BF16 3.4e38, E4M3 448, E5M2 57344; TF32 has 19 bits", "", LAYOUTS,
         _formats,
         "E4M3 has no infinity, which gives it 448 instead of 240."),
    Fact("T1", "of every four neighbours exactly two have to be zero", "2:4 sparsity", HOST, _exactly_two,
         "At least two, as the text's first sentence on it says: more zeros are stored as values."),
    Fact("T1", "a 2-bit index for each stored element", "mma.sp, 16-bit types", HOST, _metadata,
         "Positions increase, so 6 of 16 nibbles occur. TF32 stores one of two, with one position."),
    Fact("T3 (code)", "differences above 5 % of the larger value plus 0.001 show a wrong result", "benchmark's check",
         HOST, _tolerance,
         "A comparison with NaN is false, so NaN passes. `not (error <= bound)` has no such gap; "
         "`src/warptile/verify/reference.py` derives a bound from K and the types."),
)  # fmt: skip
