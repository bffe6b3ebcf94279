"""The benchmark suites of ``warptile bench --suite``, and the performance targets of each class of rows.

A row is one GEMM in the configuration that the planner takes. It is compared with cuBLASLt's fastest algorithm, with
torch and, where its target says so, with a neighbour: another GEMM that warptile runs. A row counts for the target of
each of its classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import (
    BF16,
    E4M3,
    E4M3_FAST,
    F16_F16,
    F16_F32,
    F32,
    F64,
    S8,
    TF32,
    UNALIGNED,
    TypeGroup,
)
from warptile.device import REFERENCE

CUBLASLT, NEIGHBOUR, WEIGHTS = "cuBLASLt", "beside", "TB/s"
"""What a target is relative to: cuBLASLt's fastest, the neighbour, or nothing (a rate in TB/s)."""


@dataclass(frozen=True)
class ClassTarget:
    """The performance target of a class of rows.

    Attributes:
        title: the rows in words.
        of: `CUBLASLT`, `NEIGHBOUR` or `WEIGHTS`.
        geomean: the least geometric mean over the rows, or None.
        each: the least figure of any row, or None.
    """

    title: str
    of: str
    geomean: float | None = None
    each: float | None = None


FEWER_SMS = 120
"""SMs of the rows that leave some of the GPU to other work."""

CLASS_TARGETS = {
    "large": ClassTarget("large aligned bf16 and f16, all layouts", CUBLASLT, geomean=1.02, each=0.98),
    "medium": ClassTarget("medium sizes with a partial last wave", CUBLASLT, geomean=1.03, each=0.96),
    "small": ClassTarget("small M, and small M and N with a long K", CUBLASLT, geomean=1.03, each=0.96),
    "weights": ClassTarget("bandwidth of reading B at M <= 16, B of 8192x8192 and larger", WEIGHTS, each=4.1),
    "batch": ClassTarget("batched GEMM, batch of 64", CUBLASLT, each=1.0),
    "unaligned": ClassTarget("misaligned, relative to the aligned neighbour", NEIGHBOUR, each=0.88),
    "e4m3-fast": ClassTarget("e4m3, fast accumulation", CUBLASLT, each=1.02),
    "e4m3-exact": ClassTarget("e4m3, two-level accumulation", CUBLASLT, each=0.95),
    "e4m3-anywhere": ClassTarget("e4m3, other layouts and misaligned, relative to aligned TN", NEIGHBOUR, each=0.85),
    "s8": ClassTarget("s8, TN", CUBLASLT, each=1.0),
    "s8-nn": ClassTarget("s8, NN", CUBLASLT, each=8.0),
    "tf32": ClassTarget("tf32", CUBLASLT, each=1.03),
    "sparse": ClassTarget("2:4 sparse bf16, relative to dense", NEIGHBOUR, each=1.4),
    "f32-out": ClassTarget("bf16 with float32 output, relative to bf16 output", NEIGHBOUR, each=0.95),
    "k-scaling": ClassTarget("scaling in K, relative to K = 4096", NEIGHBOUR, each=0.97),
    "max-sms": ClassTarget(f"{FEWER_SMS} of {REFERENCE.sms} SMs, relative to all of them", NEIGHBOUR),
    "f32-large": ClassTarget("float32 from 4096^3 on", CUBLASLT, each=3.5),
    "f32-medium": ClassTarget("float32, 2048^3", CUBLASLT, each=2.0),
    "f32-small": ClassTarget("float32, smaller and skinny", CUBLASLT, each=1.0),
    "f32-drawn": ClassTarget("float32, sizes and layouts drawn at random", CUBLASLT, each=1.0),
    "f32-columns": ClassTarget("float32 with few columns, drawn at random", CUBLASLT, each=1.0),
    "f64": ClassTarget("float64, squares, few rows or columns, long and short K", CUBLASLT),
    "f64-drawn": ClassTarget("float64, sizes and layouts drawn at random", CUBLASLT),
    "f32-batch": ClassTarget("batches of float32", CUBLASLT, each=1.0),
    "f64-batch": ClassTarget("batches of float64", CUBLASLT, each=1.0),
    "bf16-batch": ClassTarget("batches of bf16, some misaligned", CUBLASLT, each=1.0),
    "f16-sums": ClassTarget("f16 with f16 accumulators", CUBLASLT),
}
"""The targets by class. Those without a figure are shown and not held to one."""


@dataclass(frozen=True)
class SuiteRow:
    """One row of a suite.

    Attributes:
        problem: what is computed.
        classes: names of `CLASS_TARGETS` that it counts for.
        offset: elements from where memory is aligned to the beginning of each matrix.
        neighbour: another GEMM that warptile runs in the same rounds, or None.
        max_sms: the most SMs that the GEMM may occupy, or None for all.
    """

    problem: ProblemKey
    classes: tuple[str, ...]
    offset: int = 0
    neighbour: ProblemKey | None = None
    max_sms: int | None = None

    @property
    def name(self) -> str:
        """The row as a table shows it, such as ``4096^3 bf16 TN``."""
        return row_name(self.problem, self.offset, self.max_sms)


GROUP_NAMES = {
    (group.dtype, group.accumulator, group.out): name
    for group, name in (
        (BF16, "bf16"), (F16_F32, "f16"), (F16_F16, "f16, f16 accumulators"), (TF32, "tf32"), (E4M3, "e4m3"),
        (E4M3_FAST, "e4m3 fast"), (S8, "s8"), (F32, "f32"), (F64, "f64"),
        (TypeGroup("", "bfloat16", "float32", "float32"), "bf16 -> f32"),
    )
}  # fmt: skip


def row_name(key: ProblemKey, offset: int = 0, max_sms: int | None = None) -> str:
    """A problem as a table names it. The layout is in BLAS letters, B first (as cuBLASLt sees it): ``T`` is K-major."""
    types = GROUP_NAMES.get((key.dtype, key.accumulator, key.out), f"{key.dtype}, {key.accumulator} -> {key.out}")
    layout = ("T" if key.b_major == "col" else "N") + ("T" if key.a_major == "col" else "N")
    words = [key.shape, types, layout, *(["sparse"] if key.sparse else [])]
    words += [f"offset {offset}"] if offset else []
    return " ".join([*words, *([f"on {max_sms} SMs"] if max_sms else [])])


F32_OUT = TypeGroup("bf16 -> f32", "bfloat16", "float32", "float32")
POWERS = (2048, 4096, 8192, 16384)
STEPS = tuple(range(1024, 3585, 256))
LAYOUTS = (("row", "row"), ("col", "row"), ("col", "col"))
"""Layouts of A and B other than TN, in which both are K-major."""

LARGE_SHAPES = ((8192, 4096, 14336), (8192, 28672, 4096), (4096, 8192, 28672))
MEDIUM_SHAPES = ((512, 6144, 4096), (1024, 28672, 4096), (768, 8192, 8192))
WEIGHT_SHAPES = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),
    (10240, 8192), (8192, 8192), (28672, 8192), (8192, 28672),
)  # fmt: skip
"""N and K of the GEMMs in a layer of Llama 3, first 8B, then 70B: fused query, key and value; output; gate and up
(fused in 8B, each in 70B); down."""

TOKENS = (1, 8, 16, 32, 64, 128)
LONG_SHAPES = ((128, 128, 16384), (256, 256, 65536), (64, 64, 65536))
FEW_TOKENS, MANY_WEIGHTS = 16, 8192 * 8192
E4M3_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096), (128, 28672, 4096), (16, 28672, 4096))
E4M3_UNALIGNED = ((4096, 4096, 4090), (4096, 4090, 4096))
F32_SIZES = (128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192)
F32_SHAPES = (
    (1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (128, 4096, 4096), (512, 4096, 1024), (4096, 4096, 64),
    (1000, 3001, 777), (300, 300, 20000),
)  # fmt: skip
F32_DRAWN = (
    (141, 3117, 4842, "row", "row"), (72, 976, 3048, "row", "row"), (440, 696, 928, "col", "col"),
    (16, 7600, 624, "row", "row"), (1088, 1984, 12664, "row", "row"), (16, 6768, 15104, "row", "row"),
    (402, 13625, 3142, "row", "row"), (1104, 328, 5656, "row", "col"), (16, 12110, 568, "col", "row"),
    (96, 1032, 496, "row", "col"), (1548, 1975, 8591, "col", "col"), (350, 338, 1591, "row", "row"),
    (96, 464, 6752, "col", "col"), (1064, 600, 88, "row", "col"), (985, 1347, 275, "row", "row"),
    (1808, 2280, 1960, "row", "col"), (224, 56, 7744, "row", "row"), (160, 2832, 3400, "col", "row"),
    (96, 928, 775, "col", "row"), (568, 864, 3144, "row", "col"), (208, 14712, 1208, "col", "row"),
    (182, 7211, 827, "row", "row"), (24, 4208, 1784, "row", "col"), (48, 1312, 3080, "col", "col"),
)  # fmt: skip
"""M, N, K and how A and B are stored, drawn once: sizes log-uniformly, half of them multiples of 8. No cost model is
fitted to them."""

F32_COLUMNS = (
    (1030, 80, 2061, "row", "row"), (7784, 16, 3344, "col", "col"), (1817, 43, 2570, "col", "row"),
    (768, 88, 10608, "col", "row"), (11674, 26, 1374, "row", "col"), (1912, 8, 8496, "col", "row"),
    (2328, 32, 1568, "col", "col"), (3145, 34, 5563, "row", "col"), (480, 56, 6680, "row", "col"),
    (2936, 24, 288, "col", "col"), (616, 48, 48, "row", "col"), (1232, 8, 2680, "col", "col"),
    (2912, 64, 6008, "col", "col"), (1730, 27, 12847, "col", "col"), (17341, 48, 776, "row", "col"),
    (1288, 8, 6960, "row", "col"), (383, 8, 1149, "row", "row"), (4712, 16, 120, "col", "col"),
)  # fmt: skip
"""The same with few columns."""

F64_SIZES = (128, 256, 512, 1024, 2048, 4096)
F64_SHAPES = ((1, 4096, 4096), (4096, 1, 4096), (16, 4096, 4096), (4096, 16, 4096), (256, 256, 16384), (4096, 4096, 64))
F64_DRAWN = (
    (2470, 7, 1877, "col", "row"), (80, 24, 3064, "col", "col"), (63, 65, 7007, "col", "col"),
    (280, 8, 6456, "row", "row"), (112, 184, 176, "col", "col"), (773, 29, 50, "col", "row"),
    (166, 289, 68, "row", "col"), (144, 160, 5288, "col", "row"), (96, 2912, 168, "row", "col"),
    (3344, 520, 1024, "row", "col"), (410, 103, 13441, "col", "col"), (2840, 24, 1136, "col", "row"),
    (100, 476, 5713, "row", "row"), (240, 16, 296, "row", "col"), (464, 1624, 104, "row", "row"),
    (285, 485, 13427, "col", "col"), (513, 15, 1122, "col", "row"), (799, 8, 579, "row", "row"),
)  # fmt: skip
"""As `F32_DRAWN`."""

F32_BATCHES = (
    (64, 128, 128, 128, "row", "col"), (16, 512, 512, 512, "row", "row"), (8, 1024, 1024, 1024, "row", "col"),
    (5, 8, 24, 400, "row", "col"), (33, 57, 75, 253, "row", "row"), (24, 176, 8, 696, "col", "row"),
    (64, 11, 37, 230, "row", "row"), (16, 8, 16, 24, "row", "row"), (106, 11, 100, 499, "col", "col"),
    (4, 256, 480, 400, "col", "col"), (3, 46, 95, 254, "row", "row"),
)  # fmt: skip
F64_BATCHES = (
    (64, 128, 128, 128, "row", "col"), (8, 1024, 1024, 1024, "row", "col"),
    (7, 16, 24, 176, "col", "col"), (186, 12, 179, 194, "col", "row"), (9, 88, 24, 8, "col", "col"),
    (11, 27, 17, 346, "row", "col"), (70, 16, 288, 40, "row", "row"), (66, 15, 293, 12, "col", "row"),
)  # fmt: skip
BF16_BATCHES = (
    (64, 127, 127, 127, "row", "col"), (96, 197, 197, 64, "row", "col"), (96, 197, 64, 197, "row", "row"),
    (384, 196, 196, 64, "row", "col"), (384, 196, 64, 196, "row", "row"), (64, 577, 64, 577, "col", "row"),
    (4096, 49, 49, 32, "row", "col"), (4096, 49, 32, 49, "row", "row"), (12, 50, 64, 50, "col", "row"),
    (256, 77, 64, 77, "row", "row"), (10000, 4, 4, 4, "row", "row"), (20000, 9, 9, 9, "row", "row"),
    (1000, 30, 30, 30, "row", "col"), (500, 65, 65, 65, "row", "row"),
    (17, 184, 48, 32, "col", "row"), (12, 241, 38, 532, "col", "col"), (146, 112, 8, 56, "row", "row"),
    (2, 63, 190, 104, "row", "row"), (2, 16, 32, 552, "col", "col"), (34, 31, 22, 138, "row", "col"),
    (2, 312, 8, 56, "row", "col"), (37, 12, 24, 605, "row", "row"), (24, 24, 248, 16, "col", "col"),
    (43, 13, 80, 11, "row", "col"),
)  # fmt: skip
"""Batches: matrices, M, N, K and how A and B are stored. The first ones are usual sizes: 50, 77, 196, 197
and 577 tokens of 64 features are heads of vision transformers and of their text encoders, 49 of 32 their windows. The
others were drawn once, log-uniformly, half of them multiples of 8."""

DEPTHS, DEPTH = (2048, 8192, 16384, 32768), 4096


def _tn(group: TypeGroup, *shape: int) -> ProblemKey:
    """The problem of a group with both operands K-major."""
    m, n, k = shape if len(shape) == 3 else shape * 3
    return group.key(m, n, k, "col")


def squares() -> Iterator[SuiteRow]:
    """Square GEMMs: powers of two, and sizes with a partial last wave."""
    for size in sorted({*POWERS, *STEPS, 5120}):
        classes = [*(["medium"] if size in STEPS else []), *(["large"] if size not in STEPS or size in POWERS else [])]
        yield SuiteRow(_tn(BF16, size), tuple(classes))
    for size in (4096, 8192):
        yield SuiteRow(_tn(F16_F32, size), ("large",))


def llm() -> Iterator[SuiteRow]:
    """Language-model GEMMs with many tokens, and every layout of three large GEMMs."""
    yield from (SuiteRow(_tn(BF16, *shape), ("large",)) for shape in LARGE_SHAPES)
    yield from (SuiteRow(_tn(BF16, *shape), ("medium",)) for shape in MEDIUM_SHAPES)
    for (m, n, k), (a_major, b_major) in product(((4096,) * 3, (8192,) * 3, LARGE_SHAPES[1]), LAYOUTS):
        yield SuiteRow(BF16.key(m, n, k, b_major, a_major), ("large",))


def ragged() -> Iterator[SuiteRow]:
    """Leading dimensions or pointers that are not multiples of 16 bytes, each with its aligned neighbour."""
    for shape, offset, neighbour in UNALIGNED:
        yield SuiteRow(_tn(BF16, *shape), ("unaligned",), offset, _tn(BF16, *neighbour))


def small() -> Iterator[SuiteRow]:
    """Small M (decode shapes, limited by reading B); outputs too small to fill the GPU; a batch."""
    for (n, k), m in product(WEIGHT_SHAPES, TOKENS):
        read = m <= FEW_TOKENS and n * k >= MANY_WEIGHTS
        yield SuiteRow(_tn(BF16, m, n, k), ("small", "weights") if read else ("small",))
    yield from (SuiteRow(_tn(BF16, *shape), ("small",)) for shape in LONG_SHAPES)
    yield SuiteRow(msgspec.structs.replace(_tn(BF16, 1024), batch=64), ("batch",))


def types() -> Iterator[SuiteRow]:
    """Other types, 2:4 sparsity, long K, and fewer SMs."""
    yield from (SuiteRow(_tn(F16_F16, size), ("f16-sums",)) for size in (4096, 8192))
    yield SuiteRow(_tn(F32_OUT, 4096), ("f32-out",), neighbour=_tn(BF16, 4096))
    yield from (SuiteRow(_tn(TF32, size), ("tf32",)) for size in (4096, 8192))
    for group, name in ((E4M3_FAST, "e4m3-fast"), (E4M3, "e4m3-exact")):
        yield from (SuiteRow(_tn(group, *shape), (name,)) for shape in E4M3_SHAPES)
        aligned = _tn(group, 4096)
        for a_major, b_major in LAYOUTS:
            yield SuiteRow(group.key(4096, 4096, 4096, b_major, a_major), ("e4m3-anywhere",), neighbour=aligned)
        yield from (SuiteRow(_tn(group, *shape), ("e4m3-anywhere",), neighbour=aligned) for shape in E4M3_UNALIGNED)
    yield from (SuiteRow(_tn(S8, size), ("s8",)) for size in (4096, 8192))
    yield from (SuiteRow(S8.key(size, size, size), ("s8-nn",)) for size in (4096, 8192))
    for size in (4096, 8192):
        dense = _tn(BF16, size)
        yield SuiteRow(msgspec.structs.replace(dense, sparse=True), ("sparse",), neighbour=dense)
        yield SuiteRow(dense, ("max-sms",), neighbour=dense, max_sms=FEWER_SMS)
    for depth in DEPTHS:
        yield SuiteRow(_tn(BF16, 4096, 4096, depth), ("k-scaling",), neighbour=_tn(BF16, 4096, 4096, DEPTH))


def float32() -> Iterator[SuiteRow]:
    """float32 as accurate as float32: squares, small M, long K, short K, every layout, and sizes drawn at random."""
    for size in F32_SIZES:
        large, medium = size >= 4096, size == 2048
        yield SuiteRow(_tn(F32, size), ("f32-large" if large else "f32-medium" if medium else "f32-small",))
    for a_major, b_major in LAYOUTS:
        yield SuiteRow(F32.key(4096, 4096, 4096, b_major, a_major), ("f32-large",))
    yield from (SuiteRow(_tn(F32, *shape), ("f32-small",)) for shape in F32_SHAPES)
    for rows, name in ((F32_DRAWN, "f32-drawn"), (F32_COLUMNS, "f32-columns")):
        yield from (SuiteRow(F32.key(m, n, k, b_major, a_major), (name,)) for m, n, k, a_major, b_major in rows)


def float64() -> Iterator[SuiteRow]:
    """float64: squares, few rows, few columns, long and short K, and sizes drawn at random."""
    yield from (SuiteRow(_tn(F64, size), ("f64",)) for size in F64_SIZES)
    yield from (SuiteRow(_tn(F64, *shape), ("f64",)) for shape in F64_SHAPES)
    yield from (SuiteRow(F64.key(m, n, k, b_major, a_major), ("f64-drawn",)) for m, n, k, a_major, b_major in F64_DRAWN)


def batches() -> Iterator[SuiteRow]:
    """Batches of matrices of any size: float32, float64 and bfloat16, misaligned ones among them."""
    kinds = ((F32, F32_BATCHES, "f32-batch"), (F64, F64_BATCHES, "f64-batch"), (BF16, BF16_BATCHES, "bf16-batch"))
    for group, drawn, name in kinds:
        for batch, m, n, k, a_major, b_major in drawn:
            yield SuiteRow(msgspec.structs.replace(group.key(m, n, k, b_major, a_major), batch=batch), (name,))


SUITES = {
    "squares": tuple(squares()),
    "llm": tuple(llm()),
    "ragged": tuple(ragged()),
    "small": tuple(small()),
    "types": tuple(types()),
    "float32": tuple(float32()),
    "float64": tuple(float64()),
    "batches": tuple(batches()),
}
"""The rows by suite."""


def chosen(suite: str, only: tuple[str, ...] = ()) -> tuple[SuiteRow, ...]:
    """Rows of a suite; with ``only``, those whose name has one of its words."""
    return tuple(row for row in SUITES[suite] if not only or any(word in row.name for word in only))
