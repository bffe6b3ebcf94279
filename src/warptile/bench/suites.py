"""What is compared with the vendor's library, and what is aimed at: the rows of ``warptile bench --suite`` and targets.

A row is one product in the configuration that a plan takes, beside cuBLASLt's best algorithm, torch, and, where the
target says so, another product of ours. Its classes are the targets that it counts for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

from warptile.bench.measurements import ProblemKey
from warptile.bench.workloads import BF16, E4M3, E4M3_FAST, F16_F16, F16_F32, S8, TF32, UNALIGNED, Group

CUBLASLT, BESIDE, WEIGHTS = "cuBLASLt", "beside", "TB/s"
"""What a target is a share of: the library's best, the other product of ours, or nothing: it is a rate of bytes."""


@dataclass(frozen=True)
class Target:
    """What a class of rows is aimed at.

    Attributes:
        title: the rows in words.
        of: `CUBLASLT`, `BESIDE` or `WEIGHTS`.
        geomean: the least geometric mean over the rows, or None.
        each: the least figure of any row, or None.
    """

    title: str
    of: str
    geomean: float | None = None
    each: float | None = None


TARGETS = {
    "large": Target("large aligned bf16 and f16, all layouts", CUBLASLT, geomean=1.02, each=0.98),
    "medium": Target("medium, wave-unfriendly", CUBLASLT, geomean=1.03, each=0.96),
    "small": Target("small M, and long K", CUBLASLT, geomean=1.03, each=0.96),
    "weights": Target("bytes of weights at M <= 16, 8192x8192 and larger", WEIGHTS, each=4.1),
    "batch": Target("batch of 64", CUBLASLT, each=1.0),
    "unaligned": Target("unaligned, of the aligned neighbour's rate", BESIDE, each=0.88),
    "e4m3-fast": Target("e4m3, fast sums", CUBLASLT, each=1.02),
    "e4m3-exact": Target("e4m3, exact sums", CUBLASLT, each=0.95),
    "e4m3-anywhere": Target("e4m3, other layouts and unaligned, of TN's rate", BESIDE, each=0.85),
    "s8": Target("s8, TN", CUBLASLT, each=1.0),
    "s8-nn": Target("s8, NN", CUBLASLT, each=8.0),
    "tf32": Target("tf32", CUBLASLT, each=1.03),
    "sparse": Target("2:4 sparse bf16, of the dense rate", BESIDE, each=1.4),
    "f32-out": Target("bf16 with float32 output, of bf16 output's rate", BESIDE, each=0.95),
    "k-scaling": Target("linear in K, of the rate at K = 4096", BESIDE, each=0.97),
    "max-sms": Target("120 of 132 multiprocessors, of the whole GPU's rate", BESIDE),
    "f16-sums": Target("f16 with f16 sums", CUBLASLT),
}
"""Issue 5's table of targets and the sentence below it. Those without a figure are shown and not held to one."""


@dataclass(frozen=True)
class Row:
    """One row of a suite.

    Attributes:
        problem: what is computed.
        classes: names of `TARGETS` that it counts for.
        offset: elements from where memory is aligned to the beginning of each matrix.
        beside: another product of ours, timed in the same rounds, or None.
        max_sms: the most multiprocessors that the product may take, or None for all.
    """

    problem: ProblemKey
    classes: tuple[str, ...]
    offset: int = 0
    beside: ProblemKey | None = None
    max_sms: int | None = None

    @property
    def name(self) -> str:
        """The row as a table shows it, such as ``4096^3 bf16 TN``."""
        return row_name(self.problem, self.offset, self.max_sms)


GROUP_NAMES = {
    (group.dtype, group.accumulator, group.out): name
    for group, name in (
        (BF16, "bf16"), (F16_F32, "f16"), (F16_F16, "f16, f16 sums"), (TF32, "tf32"), (E4M3, "e4m3"),
        (E4M3_FAST, "e4m3 fast"), (S8, "s8"), (Group("", "bfloat16", "float32", "float32"), "bf16 -> f32"),
    )
}  # fmt: skip


def row_name(key: ProblemKey, offset: int = 0, max_sms: int | None = None) -> str:
    """A problem in few words. The layout is in BLAS's letters, which see our B first: ``T`` where it lies along K."""
    types = GROUP_NAMES.get((key.dtype, key.accumulator, key.out), f"{key.dtype}, {key.accumulator} -> {key.out}")
    layout = ("T" if key.b_major == "col" else "N") + ("T" if key.a_major == "col" else "N")
    words = [key.shape, types, layout, *(["sparse"] if key.sparse else [])]
    words += [f"offset {offset}"] if offset else []
    return " ".join([*words, *([f"on {max_sms} SMs"] if max_sms else [])])


F32_OUT = Group("bf16 -> f32", "bfloat16", "float32", "float32")
POWERS = (2048, 4096, 8192, 16384)
STEPS = tuple(range(1024, 3585, 256))
LAYOUTS = (("row", "row"), ("col", "row"), ("col", "col"))
"""Majors of A and B beside the usual one, A along K and B along K (TN)."""

LARGE_SHAPES = ((8192, 4096, 14336), (8192, 28672, 4096), (4096, 8192, 28672))
MEDIUM_SHAPES = ((512, 6144, 4096), (1024, 28672, 4096), (768, 8192, 8192))
WEIGHT_SHAPES = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),
    (10240, 8192), (8192, 8192), (28672, 8192), (8192, 28672),
)  # fmt: skip
"""N and K of the products of a layer of Llama 3, first of 8B, then of 70B: queries, keys and values in one; output;
gate and up (in one of 8B, each of 70B); down."""

TOKENS = (1, 8, 16, 32, 64, 128)
LONG_SHAPES = ((128, 128, 16384), (256, 256, 65536), (64, 64, 65536))
FEW_TOKENS, MANY_WEIGHTS = 16, 8192 * 8192
E4M3_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096), (128, 28672, 4096), (16, 28672, 4096))
E4M3_UNALIGNED = ((4096, 4096, 4090), (4096, 4090, 4096))
DEPTHS, DEPTH = (2048, 8192, 16384, 32768), 4096
FEWER_SMS = 120


def _tn(group: Group, *shape: int) -> ProblemKey:
    """Both operands along K."""
    m, n, k = shape if len(shape) == 3 else shape * 3
    return group.key(m, n, k, "col")


def squares() -> Iterator[Row]:
    """Square products: powers of two, and sizes that fill the last wave badly."""
    for size in sorted({*POWERS, *STEPS, 5120}):
        classes = [*(["medium"] if size in STEPS else []), *(["large"] if size not in STEPS or size in POWERS else [])]
        yield Row(_tn(BF16, size), tuple(classes))
    for size in (4096, 8192):
        yield Row(_tn(F16_F32, size), ("large",))


def llm() -> Iterator[Row]:
    """Products of language models with many tokens, and every layout of three large products."""
    yield from (Row(_tn(BF16, *shape), ("large",)) for shape in LARGE_SHAPES)
    yield from (Row(_tn(BF16, *shape), ("medium",)) for shape in MEDIUM_SHAPES)
    for (m, n, k), (a_major, b_major) in product(((4096,) * 3, (8192,) * 3, LARGE_SHAPES[1]), LAYOUTS):
        yield Row(BF16.key(m, n, k, b_major, a_major), ("large",))


def ragged() -> Iterator[Row]:
    """Rows or pointers that are not aligned to 16 bytes, beside an aligned neighbour."""
    for shape, offset, neighbour in UNALIGNED:
        yield Row(_tn(BF16, *shape), ("unaligned",), offset, _tn(BF16, *neighbour))


def small() -> Iterator[Row]:
    """Few tokens, which is reading weights; outputs too small for the GPU; a batch."""
    for (n, k), m in product(WEIGHT_SHAPES, TOKENS):
        read = m <= FEW_TOKENS and n * k >= MANY_WEIGHTS
        yield Row(_tn(BF16, m, n, k), ("small", "weights") if read else ("small",))
    yield from (Row(_tn(BF16, *shape), ("small",)) for shape in LONG_SHAPES)
    yield Row(msgspec.structs.replace(_tn(BF16, 1024), batch=64), ("batch",))


def types() -> Iterator[Row]:
    """Other types and what goes with them: a sparse A, longer sums, fewer multiprocessors."""
    yield from (Row(_tn(F16_F16, size), ("f16-sums",)) for size in (4096, 8192))
    yield Row(_tn(F32_OUT, 4096), ("f32-out",), beside=_tn(BF16, 4096))
    yield from (Row(_tn(TF32, size), ("tf32",)) for size in (4096, 8192))
    for group, name in ((E4M3_FAST, "e4m3-fast"), (E4M3, "e4m3-exact")):
        yield from (Row(_tn(group, *shape), (name,)) for shape in E4M3_SHAPES)
        beside = _tn(group, 4096)
        for a_major, b_major in LAYOUTS:
            yield Row(group.key(4096, 4096, 4096, b_major, a_major), ("e4m3-anywhere",), beside=beside)
        yield from (Row(_tn(group, *shape), ("e4m3-anywhere",), beside=beside) for shape in E4M3_UNALIGNED)
    yield from (Row(_tn(S8, size), ("s8",)) for size in (4096, 8192))
    yield from (Row(S8.key(size, size, size), ("s8-nn",)) for size in (4096, 8192))
    for size in (4096, 8192):
        dense = _tn(BF16, size)
        yield Row(msgspec.structs.replace(dense, sparse=True), ("sparse",), beside=dense)
        yield Row(dense, ("max-sms",), beside=dense, max_sms=FEWER_SMS)
    for depth in DEPTHS:
        yield Row(_tn(BF16, 4096, 4096, depth), ("k-scaling",), beside=_tn(BF16, 4096, 4096, DEPTH))


SUITES = {
    "squares": tuple(squares()),
    "llm": tuple(llm()),
    "ragged": tuple(ragged()),
    "small": tuple(small()),
    "types": tuple(types()),
}
"""The rows by suite."""


def chosen(suite: str, only: tuple[str, ...] = ()) -> tuple[Row, ...]:
    """Rows of a suite, or those of which the name has one of some words."""
    return tuple(row for row in SUITES[suite] if not only or any(word in row.name for word in only))
