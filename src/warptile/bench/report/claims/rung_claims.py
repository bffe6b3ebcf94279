"""The performance claims of the source texts, each with its conditions, and the verdict that a measurement gives.

The published numbers are theirs. What was measured comes from records when a page is made; why the two differ is said
once for each class of claims (`REASONS`), and what a row adds to that holds no measured number.

Source texts: T0 "Tensor cores I: the WMMA GEMM", T1 "tensor cores from WMMA to WGMMA" (A100 guide), T2 "Teaching the
tensor-core rebuild", T3 the WMMA HGEMM worklog (eight kernels, A100-40GB), T4 "Tensor cores III: to cuBLAS speed".
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import H200
from warptile.bench.protocol.workloads import BF16, F16_F16, F16_F32, F32, TypeGroup
from warptile.bench.report.claims.fact import Verdict

OF_CUBLAS, TFLOPS, STEP, INTENSITY = "of cuBLAS", "TFLOP/s", "times previous", "FLOP/byte"
CONFLICTS = "wavefronts / ideal"
OF_LIMIT, INDEX, REGISTERS = "of what the instruction can issue", "index arithmetic", "registers"
UNITS = (OF_CUBLAS, TFLOPS, STEP, INTENSITY, CONFLICTS, OF_LIMIT, INDEX, REGISTERS)


@dataclass(frozen=True)
class Reason:
    """Why claims of one class differ from what is measured here.

    Attributes:
        letter: by which a row refers to it.
        text: the reason.
    """

    letter: str
    text: str


A100_F32, A100_HALF2, A100_F16 = 19.5, 78.0, 312.0
"""TFLOP/s of an A100 at most: NVIDIA A100 Tensor Core GPU Architecture, "peak rates"; tensor cores for the last."""

HALF2 = 2 * H200.fp32_tflops
"""TFLOP/s of two halves at a time on the H200's CUDA cores: CUDA C++ Programming Guide, "Throughput of native
arithmetic instructions"."""

SPEED = Reason(
    "A",
    f"A speed of another GPU. The peak was {A100_F16:.0f} TFLOP/s there ({A100_HALF2:.0f} with half2, {A100_F32} in "
    f"FP32); here `mma.sync` issues {H200.tensor_tflops['float16']:.0f} ({HALF2:.0f}, {H200.fp32_tflops}). The shares "
    "of it are compared.",
)
SHARE = Reason(
    "B",
    "A share of a cuBLAS that used `mma.sync` itself. On Hopper it uses `wgmma`, which issues "
    f"{H200.wgmma_tflops['float16'] / H200.tensor_tflops['float16']:.2f} times as fast: every share shrinks by as much "
    "before anything else differs, and the share of what the instruction can issue is the fair measure ([targets]"
    "(#targets-of-the-ladder)).",
)
SHARE_F32 = Reason(
    "C",
    "A share of cuBLAS in FP32, which multiplies on CUDA cores on both GPUs: tiles and the library's version differ.",
)
GAIN = Reason("D", "A gain over the kernel before. It carries over where the same resource limits both kernels on both "
              "GPUs; where counters say so, the row names what changed.")  # fmt: skip
COUNTED = Reason("E", "Counted, not timed: the addresses decide, on every GPU alike.")
OWN_KERNEL = Reason("F", "A property of the text's own kernel; this project's, of the same design, is another one.")
REASONS = (SPEED, SHARE, SHARE_F32, GAIN, COUNTED, OWN_KERNEL)


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
        note: what explains this row beyond its reason.
        size: extent of our measurement.
        previous: the rung that a step starts from.
        in_type_table: the measurement is that of the table of types, at its own size.
    """

    source: str
    rung: str
    unit: str
    published: float
    conditions: str
    group: TypeGroup
    note: str = ""
    size: int = 4096
    previous: str | None = None
    in_type_table: bool = False

    def __post_init__(self) -> None:
        assert self.unit in UNITS, self.unit
        assert (self.unit == STEP) == (self.previous is not None), self

    @property
    def reason(self) -> Reason:
        """The reason of the claim's class."""
        if self.unit == OF_CUBLAS:
            return SHARE_F32 if self.group == F32 else SHARE
        if self.unit in (INTENSITY, CONFLICTS):
            return COUNTED
        return {TFLOPS: SPEED, STEP: GAIN}.get(self.unit, OWN_KERNEL)

    @property
    def peaks(self) -> tuple[float, float]:
        """TFLOP/s of the instruction at most: on the A100, and as issued on the H200."""
        if self.group == F32:
            return A100_F32, H200.fp32_tflops
        return (A100_HALF2, HALF2) if self.rung == "simt-half2" else (A100_F16, H200.tensor_tflops["float16"])

    def verdict(self, measured: float) -> Verdict:
        """The verdict on a measurement.

        What is counted holds within 2 %, and otherwise does not hold. A property of a kernel holds within 5 %. Of a
        speed, the share of the GPU's peak is compared; it and a share of cuBLAS hold if at least 95 % of them are
        reached, a gain if at least 90 % is. What is missed holds elsewhere: this project has not measured the GPU that
        it was published for.
        """
        ratio = measured / self.published
        if self.reason is SPEED:
            there, here = self.peaks
            ratio *= there / here
        if self.reason is COUNTED:
            return Verdict.HOLDS if abs(ratio - 1) <= 0.02 else Verdict.FAILS
        if self.reason is OWN_KERNEL:
            return Verdict.HOLDS if abs(ratio - 1) <= 0.05 else Verdict.ELSEWHERE
        return Verdict.HOLDS if ratio >= (0.9 if self.unit == STEP else 0.95) else Verdict.ELSEWHERE


_A100 = "A100"
_A100_40 = "A100-40GB, f16 accumulators"
_STEPS = {
    "wmma-async": "Fragment loads with bank conflicts limit both kernels, so bypassing registers gains little before "
    "the padding; with f32 accumulators it gains.",
    "wmma-double-buffer": "The loop still holds the test for ragged tiles, and the compiler does not keep two sets of "
    "fragments alive; in `wmma-final`, whose loop is one basic block, the two sets pay.",
    "wmma-dynamic-smem": "More stages hide a latency that two resident CTAs already hide; as published, they gain "
    "nothing by themselves.",
    "wmma-final": "Larger CTA tiles than the worklog's, which Hopper's 227 KB of shared memory allow, and a "
    "mainloop without branches.",
}
"""What explains a step of the worklog, from the counters of the profile record."""

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


def _worklog() -> tuple[Claim, ...]:
    found: list[Claim] = []
    published = {rung: tflops for rung, tflops, _, _ in _WORKLOG}
    for number, (rung, tflops, share, previous) in enumerate(_WORKLOG, 1):
        source = f"T3 kernel {number}"
        found.append(Claim(source, rung, TFLOPS, tflops, _A100_40, F16_F16))
        found.append(Claim(source, rung, OF_CUBLAS, share, _A100_40, F16_F16))
        if previous is not None:
            step = tflops / published[previous]
            found.append(Claim(source, rung, STEP, step, _A100_40, F16_F16, _STEPS.get(rung, ""), previous=previous))
    return tuple(found)


CLAIMS: tuple[Claim, ...] = (
    Claim("T0", "simt-warptile", OF_CUBLAS, 0.937, "FP32 on CUDA cores", F32),
    Claim("T3", "simt-warptile", OF_CUBLAS, 0.89, "FP32 on CUDA cores", F32),
    Claim("T1", "simt-warptile", TFLOPS, 7.1, _A100, F32),
    Claim("T1", "simt-half2", TFLOPS, 14.8, _A100, F16_F16),
    Claim("T0, T2", "wmma-naive", OF_CUBLAS, 0.08, "operands read from global memory", F16_F32),
    Claim("T0", "wmma-naive", INTENSITY, 4.0, "", F16_F32,
          "Per byte of the sectors that are moved: a lane's 4-byte load of a fragment uses half of each sector it "
          "touches. Per byte asked for it is twice that.", size=2048),
    Claim("T1", "wmma-naive", TFLOPS, 28.0, _A100, F16_F32),
    Claim("T1", "wmma-shared", TFLOPS, 95.0, _A100, F16_F32),
    Claim("T1", "wmma-multistage", TFLOPS, 135.0, "A100, two buffers", F16_F32),
    *_worklog(),
    Claim("T3 kernel 4", "wmma-padded", CONFLICTS, 1.0, "rows padded by 8 halves", F16_F32,
          "Eight rows of 80 bytes fall into distinct groups of four banks.", size=2048),
    Claim("T4", "mma-naive", OF_CUBLAS, 0.08, _AMPERE, F16_F32),
    Claim("T4", "mma-vectorized", OF_CUBLAS, 0.24, _AMPERE, F16_F32),
    Claim("T2", "mma-vectorized", CONFLICTS, 8.0, "rows of 128 bytes, no swizzle", F16_F32,
          "Eight rows 128 bytes apart start in the same four banks.", size=2048),
    Claim("T2, T4", "mma-swizzled", CONFLICTS, 1.0, "swizzled; Nsight's counter of conflicts at 0", F16_F32,
          "With the chunk XOR the row's three low bits. The mask that the texts print does not reach it ([third "
          "listing](#the-two-bit-swizzle)).", size=2048),
    Claim("T2, T4", "mma-swizzled", STEP, 2.0, "25 % to 50 % of cuBLAS", F16_F32,
          "Fragment loads take an eighth of the time; what is left is waiting for global memory.",
          previous="mma-vectorized"),
    Claim("T4", "mma-swizzled", OF_CUBLAS, 0.50, _AMPERE, F16_F32),
    Claim("T4", "mma-double-buffer", OF_CUBLAS, 0.70, _AMPERE, F16_F32),
    Claim("T4", "mma-double-buffer", INDEX, 0.92, "instructions, before its indices were hoisted", F16_F32,
          "Integer instructions (IMAD, IADD3, LOP3, LEA, SHF, ISETP and their uniform forms) of all executed ones. "
          "In a kernel with constant tile sizes the compiler hoists most by itself.", size=2048),
    Claim("T4", "mma-final", OF_CUBLAS, 0.96, _AMPERE, F16_F32, size=8192),
    Claim("T4", "mma-final", OF_CUBLAS, 0.96, _AMPERE, BF16, size=8192),
    Claim("T4", "mma-final", REGISTERS, 165, "warp tiles of 64 x 64", F16_F32,
          "128 of them are accumulators; the rest are fragments, addresses and what the compiler keeps of the next "
          "step. Fewer would not make another CTA resident, as shared memory is full.", size=8192),
    Claim("T1", "mma-sparse", STEP, 2.0, "2:4 weights, twice the dense rate", F16_F32,
          "The sparse instruction issues at less than the dense rate on this chip; B, the metadata and the epilogue "
          "are as costly as before.", size=8192, previous="mma-final", in_type_table=True),
)  # fmt: skip
"""Every claim, in the order of the ladder's texts."""
