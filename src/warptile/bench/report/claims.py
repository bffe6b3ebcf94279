"""The performance claims of the source texts, each with its conditions and the measurement that answers it.

The published numbers are theirs. What was measured comes from records when a page is made; the sentence that says why
the two differ is kept with the claim and holds no measured number.

Source texts: T0 "Tensor cores I: the WMMA GEMM", T1 "tensor cores from WMMA to WGMMA" (A100 guide), T2 "Teaching the
tensor-core rebuild", T3 the WMMA HGEMM worklog (eight kernels, A100-40GB), T4 "Tensor cores III: to cuBLAS speed".
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.protocol.workloads import BF16, F16_F16, F16_F32, F32, F64, S8, TF32, TypeGroup

OF_CUBLAS, TFLOPS, STEP, INTENSITY = "of cuBLAS", "TFLOP/s", "times previous", "FLOP/byte"
CONFLICTS = "wavefronts / ideal"
OF_LIMIT, INDEX, REGISTERS = "of what the instruction can issue", "index arithmetic", "registers"
UNITS = (OF_CUBLAS, TFLOPS, STEP, INTENSITY, CONFLICTS, OF_LIMIT, INDEX, REGISTERS)


@dataclass(frozen=True)
class Claim:
    """One published figure.

    Attributes:
        source: which text.
        rung: the rung that answers it.
        unit: one of `UNITS`. A step is the speed relative to ``previous``.
        published: the figure; shares are fractions.
        conditions: under which it was published.
        group: the types of our measurement.
        size: extent of our measurement.
        previous: the rung that a step starts from.
        why: why ours may differ.
        in_type_table: the measurement is that of the table of types, at its own size.
    """

    source: str
    rung: str
    unit: str
    published: float
    conditions: str
    group: TypeGroup
    why: str
    size: int = 4096
    previous: str | None = None
    in_type_table: bool = False

    def __post_init__(self) -> None:
        assert self.unit in UNITS, self.unit
        assert (self.unit == STEP) == (self.previous is not None), self


_A100 = "A100"
_A100_40 = "A100-40GB, f16 accumulators"
_FASTER = "An absolute speed of another GPU: only the share of its library and the direction of the step carry over."
_WGMMA = (
    "On Hopper cuBLAS uses wgmma, which WMMA's mma.sync instructions cannot reach: the chip issues them at about two "
    "thirds of that rate, so every share of cuBLAS shrinks by as much."
)
_STEP = "The direction is what carries over; its size depends on what limits the kernel on each GPU."
_STEPS = {
    "wmma-async": "Both kernels wait for fragment loads with bank conflicts (stalls on the short scoreboard and the "
    "memory pipe), so bypassing registers gains little before the padding; with float32 accumulators it gains.",
    "wmma-double-buffer": "The loop still holds the test for ragged tiles, and the compiler does not keep two sets of "
    "fragments alive: fewer registers than the rung before, more stalls on the short scoreboard. In wmma-final, whose "
    "loop is one basic block, the two sets pay.",
    "wmma-dynamic-smem": "More stages hide a latency that two resident CTAs already hide; as published, they gain "
    "nothing by themselves.",
    "wmma-final": "Larger CTA tiles than the worklog's, which Hopper's 227 KB of shared memory allow, and a "
    "mainloop without branches.",
}
"""Why a step of the worklog comes out as it does, from the counters of the profile record."""

_WORKLOG = (
    ("wmma-block", 42.6, 0.16, None),
    ("wmma-vectorized", 74.3, 0.27, "wmma-block"),
    ("wmma-async", 82.6, 0.30, "wmma-vectorized"),
    ("wmma-padded", 154.5, 0.57, "wmma-async"),
    ("wmma-multistage", 189.0, 0.69, "wmma-padded"),
    ("wmma-double-buffer", 189.8, 0.70, "wmma-multistage"),
    ("wmma-dynamic-smem", 186.8, 0.69, "wmma-double-buffer"),
    ("wmma-final", 195.7, 0.72, "wmma-dynamic-smem"),
)
"""T3's kernels 1 to 8: rung, TFLOP/s, share of cuBLAS, and the kernel before."""


_AMPERE = "Ampere"
_MMA = (
    "Published against a cuBLAS that used mma.sync itself. On Hopper cuBLAS uses wgmma: mma.sync issues at about two "
    "thirds of that rate, so the share of what the instruction can issue is the fair measure (targets below)."
)
_EIGHT = "Counted from addresses: eight rows 128 bytes apart start in the same four banks."
_ONE = (
    "Counted from addresses. The published mask, `col ^ ((row & 0b1100) >> 2)`, uses two bits of the row, of which one "
    "varies over the eight rows of an ldmatrix, and cannot do it; the 16-byte chunk XOR the row's three low bits does."
)
_HOISTED = (
    "Integer instructions (IMAD, IADD3, LOP3, LEA, SHF, ISETP and their uniform forms) of all that were executed. In a "
    "kernel with constant tile sizes the compiler hoists most by itself."
)


def _worklog() -> tuple[Claim, ...]:
    found: list[Claim] = []
    published = {rung: tflops for rung, tflops, _, _ in _WORKLOG}
    for number, (rung, tflops, share, previous) in enumerate(_WORKLOG, 1):
        source = f"T3 kernel {number}"
        found.append(Claim(source, rung, TFLOPS, tflops, _A100_40, F16_F16, _FASTER))
        found.append(Claim(source, rung, OF_CUBLAS, share, _A100_40, F16_F16, _WGMMA))
        if previous is not None:
            step = tflops / published[previous]
            why = _STEPS.get(rung, _STEP)
            found.append(Claim(source, rung, STEP, step, _A100_40, F16_F16, why, previous=previous))
    return tuple(found)


CLAIMS: tuple[Claim, ...] = (
    Claim("T0", "simt-warptile", OF_CUBLAS, 0.937, "FP32 on CUDA cores", F32,
          "The tile sizes and the copies are this project's own, and cuBLAS's FP32 kernel differs between GPUs."),
    Claim("T3", "simt-warptile", OF_CUBLAS, 0.89, "FP32 on CUDA cores", F32,
          "As above: another kernel of the same kind, against another cuBLAS."),
    Claim("T1", "simt-warptile", TFLOPS, 7.1, _A100, F32, _FASTER),
    Claim("T1", "simt-half2", TFLOPS, 14.8, _A100, F16_F16, _FASTER),
    Claim("T0, T2", "wmma-naive", OF_CUBLAS, 0.08, "operands read from global memory", F16_F32,
          "The kernel is limited by its loads through L1 and L2, the library by the tensor cores: the share follows "
          "the ratio of the two, which differs between GPUs."),
    Claim("T0, T2", "wmma-naive", INTENSITY, 4.0, "counted, not timed", F16_F32,
          "Per byte of the sectors that are moved: a lane's 4-byte load of a fragment uses half of each sector it "
          "touches. Per byte asked for it is twice that, 2 x 16 x 16 x 16 operations for two fragments of 512 bytes.",
          size=2048),
    Claim("T1", "wmma-naive", TFLOPS, 28.0, _A100, F16_F32, _FASTER),
    Claim("T1", "wmma-shared", TFLOPS, 95.0, _A100, F16_F32, _FASTER),
    Claim("T1", "wmma-multistage", TFLOPS, 135.0, "A100, two buffers", F16_F32, _FASTER),
    *_worklog(),
    Claim("T3 kernel 4", "wmma-padded", CONFLICTS, 1.0, "rows padded by 8 halves", F16_F32,
          "Counted from addresses: eight rows of 80 bytes fall into distinct groups of four banks.", size=2048),
    Claim("T4", "mma-naive", OF_CUBLAS, 0.08, _AMPERE, F16_F32, _MMA),
    Claim("T4", "mma-vectorized", OF_CUBLAS, 0.24, _AMPERE, F16_F32, _MMA),
    Claim("T2", "mma-vectorized", CONFLICTS, 8.0, "rows of 128 bytes, no swizzle", F16_F32, _EIGHT, size=2048),
    Claim("T2, T4", "mma-swizzled", CONFLICTS, 1.0, '"the counter reads literally 0"', F16_F32, _ONE, size=2048),
    Claim("T2, T4", "mma-swizzled", STEP, 2.0, "25 % to 50 % of cuBLAS", F16_F32,
          "The loads of fragments take an eighth of the time; what is left is waiting for global memory, which this "
          "rung still does not overlap with anything.", previous="mma-vectorized"),
    Claim("T4", "mma-swizzled", OF_CUBLAS, 0.50, _AMPERE, F16_F32, _MMA),
    Claim("T4", "mma-double-buffer", OF_CUBLAS, 0.70, _AMPERE, F16_F32, _MMA),
    Claim("T4", "mma-double-buffer", INDEX, 0.92, "before its indices were hoisted", F16_F32, _HOISTED, size=2048),
    Claim("T4", "mma-final", OF_CUBLAS, 0.96, _AMPERE, F16_F32, _MMA, size=8192),
    Claim("T4", "mma-final", OF_CUBLAS, 0.96, _AMPERE, BF16, _MMA, size=8192),
    Claim("T4", "mma-final", REGISTERS, 165, "warp tiles of 64 x 64", F16_F32,
          "128 of them are accumulators; the rest are fragments, addresses and what the compiler keeps of the next "
          "step. Fewer would not make another CTA resident, as shared memory is full.", size=8192),
    Claim("T1", "mma-sparse", STEP, 2.0, "2:4 weights, twice the dense rate", F16_F32,
          "The instruction does twice the operations of a dense one but issues at less than the dense rate on this "
          "chip; B, the metadata and the epilogue are as costly as before.", size=8192, previous="mma-final",
          in_type_table=True),
)  # fmt: skip
"""Every claim, in the order of the ladder's texts."""


@dataclass(frozen=True)
class LadderTarget:
    """A goal of this project: ``rung`` reaches at least ``at_least`` (in ``unit``) on the reference GPU.

    Attributes:
        rung: the rung that is held to it.
        unit: one of `UNITS`.
        at_least: the figure that is wanted.
        group: types of the measurement.
        said: the target in words.
        size: extent of the measurement.
        cool: measured in short bursts, before the chip reaches its power limit, as issue rates are.
        in_type_table: the measurement is that of the table of types, at its own size.
        previous: the rung that a step starts from.
    """

    rung: str
    unit: str
    at_least: float
    group: TypeGroup
    said: str
    size: int = 4096
    cool: bool = False
    in_type_table: bool = False
    previous: str | None = None


_PUBLISHED = "about what published Hopper ladders show"
_ISSUED = "of what mma.sync can issue in {}, before power throttling"
LADDER_TARGETS = (
    LadderTarget("simt-warptile", OF_CUBLAS, 0.937, F32, "T0's share of cuBLAS FP32"),
    LadderTarget("wmma-naive", OF_CUBLAS, 0.08, F16_F32, "T0's share of cuBLAS"),
    LadderTarget(
        "wmma-final", TFLOPS, 420.0, F16_F32, "0.65 of what mma.sync can issue, before power throttling", cool=True
    ),
    LadderTarget("wmma-final", TFLOPS, 518.0, F16_F32, "0.8 of the same: the aim", cool=True),
    LadderTarget("wmma-final", TFLOPS, 420.0, F16_F32, "the same 420, sustained at the power limit"),
    LadderTarget("mma-final", OF_LIMIT, 0.92, F16_F32, _ISSUED.format("f16"), size=8192, cool=True),
    LadderTarget("mma-final", OF_LIMIT, 0.92, BF16, _ISSUED.format("bf16"), size=8192, cool=True),
    LadderTarget("mma-final", OF_LIMIT, 0.90, TF32, _ISSUED.format("tf32"), size=8192, cool=True, in_type_table=True),
    LadderTarget("mma-final", OF_LIMIT, 0.90, S8, _ISSUED.format("s8"), size=8192, cool=True, in_type_table=True),
    LadderTarget(
        "mma-final", OF_CUBLAS, 0.95, F64, "of cuBLAS in f64, before power throttling", cool=True, in_type_table=True
    ),
    LadderTarget("mma-final", OF_CUBLAS, 0.95, F64, "the same, sustained at the power limit", in_type_table=True),
    LadderTarget(
        "mma-sparse",
        STEP,
        1.3,
        F16_F32,
        "mma-final's speed in f16",
        size=8192,
        in_type_table=True,
        previous="mma-final",
    ),
    LadderTarget(
        "mma-sparse", STEP, 1.3, BF16, "mma-final's speed in bf16", size=8192, in_type_table=True, previous="mma-final"
    ),
    LadderTarget("wgmma-tma", TFLOPS, 300.0, BF16, _PUBLISHED, size=8192),
    LadderTarget("wgmma-specialized", TFLOPS, 500.0, BF16, _PUBLISHED, size=8192),
    LadderTarget("wgmma-cooperative", TFLOPS, 600.0, BF16, _PUBLISHED, size=8192),
    LadderTarget("wgmma-persistent", TFLOPS, 630.0, BF16, _PUBLISHED, size=8192),
    LadderTarget("wgmma-store", TFLOPS, 660.0, BF16, _PUBLISHED, size=8192),
    LadderTarget("wgmma-final", OF_CUBLAS, 0.95, BF16, "of cuBLAS, sustained"),
    LadderTarget("wgmma-final", OF_CUBLAS, 0.95, BF16, "the same at twice the size", size=8192),
)
"""What the ladder is held to."""
