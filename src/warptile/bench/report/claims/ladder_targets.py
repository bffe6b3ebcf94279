"""What the ladder is held to: goals of this project, each with the rung that has to reach it."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.protocol.workloads import BF16, F16_F32, F32, F64, S8, TF32, TypeGroup
from warptile.bench.report.claims.rung_claims import OF_CUBLAS, OF_LIMIT, STEP, TFLOPS


@dataclass(frozen=True)
class LadderTarget:
    """A goal of this project: ``rung`` reaches at least ``at_least`` (in ``unit``) on the reference GPU.

    Attributes:
        rung: the rung that is held to it.
        unit: one of `warptile.bench.report.claims.rung_claims.UNITS`.
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
