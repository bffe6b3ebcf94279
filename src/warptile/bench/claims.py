"""What the source texts claim, as data: the claim, its conditions, and which measurement answers it.

The published numbers are theirs. What was measured comes from records when a page is made; the sentence that says why
the two differ stands beside the claim and holds no measured number.

Source texts: T0 "Tensor cores I: the WMMA GEMM", T1 "tensor cores from WMMA to WGMMA" (A100 guide), T2 "Teaching the
tensor-core rebuild", T3 the WMMA HGEMM worklog (eight kernels, A100-40GB), T4 "Tensor cores III: to cuBLAS speed".
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.workloads import BF16, F16_F16, F16_F32, F32, F64, S8, TF32, Group

OF_CUBLAS, TFLOPS, STEP, INTENSITY, CONFLICTS = "of cuBLAS", "TFLOP/s", "times previous", "FLOP/byte", "conflict ratio"
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
        menu: the measurement is that of the precision menu, at its own size.
    """

    source: str
    rung: str
    unit: str
    published: float
    conditions: str
    group: Group
    why: str
    size: int = 4096
    previous: str | None = None
    menu: bool = False

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
_STEP = "The direction is what carries over; its size depends on what bounds the kernel on each GPU."
_STEPS = {
    "wmma-async": "Both kernels wait for fragment loads with bank conflicts (stalls on the short scoreboard and the "
    "memory pipe), so copies past the registers win little before the padding; with float32 accumulators they win.",
    "wmma-double-buffer": "The loop still holds the test for ragged tiles, and the compiler does not keep two sets of "
    "fragments alive: fewer registers than the rung before, more stalls on the short scoreboard. In wmma-final, whose "
    "loop is one basic block, the two sets pay.",
    "wmma-dynamic-smem": "A longer ring hides a latency that two resident blocks already hide; as published, it wins "
    "nothing by itself.",
    "wmma-final": "Larger block tiles than the worklog's, which Hopper's 227 KB of shared memory allow, and a main "
    "loop without branches.",
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
    "varies over the eight rows of an ldmatrix, and cannot do it; the 16-byte piece XOR the row's three low bits does."
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
    Claim("T0, T2", "wmma-naive", OF_CUBLAS, 0.08, "operands straight from global memory", F16_F32,
          "The kernel is bound by its loads through L1 and L2, the library by the tensor cores: the share follows the "
          "ratio of the two, which differs between GPUs."),
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
          "step. Fewer would not let another block in, as shared memory is full.", size=8192),
    Claim("T1", "mma-sparse", STEP, 2.0, "2:4 weights, twice the dense rate", F16_F32,
          "The instruction does twice the products of a dense one but issues at less than the dense rate on this chip, "
          "and B, the metadata and the epilogue are moved as before.", size=8192, previous="mma-final", menu=True),
)  # fmt: skip
"""Every claim, in the order of the ladder's texts."""


@dataclass(frozen=True)
class Target:
    """A goal of this project: ``rung`` reaches at least ``at_least`` (in ``unit``) on the reference GPU.

    ``cool`` holds it to short bursts before the chip meets its power limit, as issue rates are measured. ``menu`` takes
    the precision menu's measurement, at its own size, and ``previous`` is where a step starts.
    """

    rung: str
    unit: str
    at_least: float
    group: Group
    said: str
    size: int = 4096
    cool: bool = False
    menu: bool = False
    previous: str | None = None


_PUBLISHED = "about what published Hopper ladders show"
_ISSUED = "of what mma.sync can issue in {}, before power throttling"
TARGETS = (
    Target("simt-warptile", OF_CUBLAS, 0.937, F32, "T0's share of cuBLAS FP32"),
    Target("wmma-naive", OF_CUBLAS, 0.08, F16_F32, "T0's share of cuBLAS"),
    Target("wmma-final", TFLOPS, 420.0, F16_F32, "0.65 of what mma.sync can issue, before power throttling", cool=True),
    Target("wmma-final", TFLOPS, 518.0, F16_F32, "0.8 of the same: the aim", cool=True),
    Target("wmma-final", TFLOPS, 420.0, F16_F32, "the same 420, sustained at the power limit"),
    Target("mma-final", OF_LIMIT, 0.92, F16_F32, _ISSUED.format("f16"), size=8192, cool=True),
    Target("mma-final", OF_LIMIT, 0.92, BF16, _ISSUED.format("bf16"), size=8192, cool=True),
    Target("mma-final", OF_LIMIT, 0.90, TF32, _ISSUED.format("tf32"), size=8192, cool=True, menu=True),
    Target("mma-final", OF_LIMIT, 0.90, S8, _ISSUED.format("s8"), size=8192, cool=True, menu=True),
    Target("mma-final", OF_CUBLAS, 0.95, F64, "of cuBLAS in f64, before power throttling", cool=True, menu=True),
    Target("mma-final", OF_CUBLAS, 0.95, F64, "the same, sustained at the power limit", menu=True),
    Target("mma-sparse", STEP, 1.3, F16_F32, "mma-final's speed in f16", size=8192, menu=True, previous="mma-final"),
    Target("mma-sparse", STEP, 1.3, BF16, "mma-final's speed in bf16", size=8192, menu=True, previous="mma-final"),
    Target("wgmma-tma", TFLOPS, 300.0, BF16, _PUBLISHED, size=8192),
    Target("wgmma-specialized", TFLOPS, 500.0, BF16, _PUBLISHED, size=8192),
    Target("wgmma-cooperative", TFLOPS, 600.0, BF16, _PUBLISHED, size=8192),
    Target("wgmma-persistent", TFLOPS, 630.0, BF16, _PUBLISHED, size=8192),
    Target("wgmma-store", TFLOPS, 660.0, BF16, _PUBLISHED, size=8192),
    Target("wgmma-final", OF_CUBLAS, 0.95, BF16, "of cuBLAS, sustained"),
    Target("wgmma-final", OF_CUBLAS, 0.95, BF16, "the same at twice the size", size=8192),
)
"""What the ladder is held to."""
