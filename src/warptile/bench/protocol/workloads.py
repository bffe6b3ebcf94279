"""Which problems are measured: sizes, types, and the problems that correctness is shown on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from warptile.bench.protocol.measurements import ProblemKey
from warptile.device import usual as usual_device
from warptile.dtypes import dtype
from warptile.errors import UnsupportedError
from warptile.ladder import usual_b_major
from warptile.planning.plan import illegal, make_plan
from warptile.problem import Operand, Problem, alignment_of
from warptile.roofline.rung_points import issue_tflops
from warptile.rungs import rung as rung_named
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung

SIZES = (1024, 2048, 4096, 8192, 16384)
"""Extents of the square problems of T3's table."""

MMA_SIZES = (4096, 8192)
"""Extents on which the mma and the wgmma families are measured."""

CORRECT_SHAPES = ((4096, 4096, 4096), (1000, 1544, 808), (1009, 1013, 1019))
"""A large square, a ragged shape that 16-byte loads still fit, and three primes that they do not."""

PACKED_SHAPE = (1009, 1013, 1016)
"""The shape of primes with a K that fills whole bytes, which types narrower than a byte need."""

SMALL_SHAPES = ((64, 64, 64), (193, 161, 97), (130, 72, 40))
"""Problems small enough for compute-sanitizer: one tile, odd extents, and partial tiles that keep 16-byte rows."""

COUNTER_SHAPES = ((256, 256, 128), (200, 168, 88), (193, 161, 97))
"""Problems on which the emulator's counters are compared with the hardware's: whole tiles, partial tiles whose rows
stay aligned to 16 bytes, and odd extents."""

PROFILE_SIZE = 2048
"""Extent of the square problem that every rung is profiled on."""


@dataclass(frozen=True)
class TypeGroup:
    """Rungs that are measured against one baseline: one combination of types."""

    name: str
    dtype: str
    accumulator: str
    out: str

    def key(
        self, m: int, n: int, k: int, b_major: str = "row", a_major: str = "row", *, sparse: bool = False
    ) -> ProblemKey:
        """The problem of this group with the given extents."""
        return ProblemKey(m, n, k, self.dtype, self.accumulator, self.out, b_major, a_major, sparse)

    @property
    def packed(self) -> bool:
        """Whether operands are narrower than a byte: they lie along K, and fill whole bytes there."""
        return dtype(self.dtype).bits < 8

    @property
    def majors(self) -> tuple[tuple[str, str], ...]:
        """Majors of A and B that tensor cores can be given."""
        return (("row", "col"),) if self.packed else (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))


F16_F32 = TypeGroup("f16, f32 accumulate", "float16", "float32", "float16")
F16_F16 = TypeGroup("f16, f16 accumulate", "float16", "float16", "float16")
F32 = TypeGroup("f32", "float32", "float32", "float32")
BF16 = TypeGroup("bf16", "bfloat16", "float32", "bfloat16")
TF32 = TypeGroup("tf32", "tfloat32", "float32", "float32")
F64 = TypeGroup("f64", "float64", "float64", "float64")
S8 = TypeGroup("s8", "int8", "int32", "int32")
U8 = TypeGroup("u8", "uint8", "int32", "int32")
S8_SATURATING = TypeGroup("s8, saturating", "int8", "int32_saturating", "int32")
U8_SATURATING = TypeGroup("u8, saturating", "uint8", "int32_saturating", "int32")
S4 = TypeGroup("s4", "int4", "int32", "int32")
U4 = TypeGroup("u4", "uint4", "int32", "int32")
B1 = TypeGroup("b1, and", "bit1", "int32", "int32")
B1_XOR = TypeGroup("b1, xor", "bit1", "int32_xor", "int32")
E4M3 = TypeGroup("e4m3", "float8_e4m3", "float32", "bfloat16")
E4M3_F16 = TypeGroup("e4m3, f16 accumulate", "float8_e4m3", "float16", "float16")
E4M3_FAST = TypeGroup("e4m3, fast", "float8_e4m3", "float32_fast", "bfloat16")
E5M2 = TypeGroup("e5m2", "float8_e5m2", "float32", "bfloat16")
E5M2_FAST = TypeGroup("e5m2, fast", "float8_e5m2", "float32_fast", "bfloat16")
GROUPS = (F16_F32, F16_F16, F32, BF16, E4M3)
"""What is swept over sizes; which families in which of them, `SWEPT` says."""

_ALL_SIZES = (F16_F32, F16_F16, F32)
SWEPT = {"simt": _ALL_SIZES, "wmma": _ALL_SIZES, "mma": (F16_F32, BF16), "wgmma": (F16_F32, BF16)}
"""The groups in which the rungs of a family are compared, if they take them."""

SWEPT_FP8 = (E4M3,)
"""Those of a rung that takes FP8 alone."""

OTHER_GROUPS = (BF16, TF32, F64, S8, U8)
"""Types that are checked, and not swept."""

MMA_GROUPS = (
    F16_F32, F16_F16, BF16, TF32, F64, S8, U8, S8_SATURATING, U8_SATURATING, S4, U4, B1, B1_XOR, E4M3, E4M3_F16, E5M2,
)  # fmt: skip
"""Every combination of types that the mma family is checked in."""

WGMMA_GROUPS = (
    BF16, F16_F32, F16_F16, TF32, S8, U8, S8_SATURATING, B1, E4M3, E4M3_FAST, E4M3_F16, E5M2, E5M2_FAST,
)  # fmt: skip
"""Every combination of types that the wgmma family is checked in."""

TYPE_GROUPS = (F16_F32, F16_F16, BF16, TF32, F64, E4M3, E4M3_FAST, E5M2, E5M2_FAST, S8, U8, S4, B1)
"""The table of types: what is measured once for each type."""

SPARSE_GROUPS = (F16_F32, BF16, TF32, E4M3, S8)
"""The types in which the table of types has a sparse A as well."""


TYPE_TABLE_RUNGS = ("mma-final", "mma-sparse", "wgmma-final", "wgmma-sparse")
"""The rungs that are measured in every type that they take."""

TYPE_TABLE_SIZE, F64_SIZE, LAYOUT_SIZE = 8192, 4096, 4096
SECOND_TYPE_TABLE_SIZE = 4096
"""A further size of the table of types, for the rungs of `AT_BOTH_SIZES`, in a brief look."""

AT_BOTH_SIZES = ("wgmma-final",)
LAYOUT_GROUPS = {"mma-final": TYPE_GROUPS, "wgmma-final": (F16_F32, BF16, TF32, E4M3, E4M3_FAST, S8)}
"""The rungs that are measured in every layout, and in which types."""

UNALIGNED = (
    ((4095, 4096, 4096), 0, (4096, 4096, 4096)),
    ((4096, 4095, 4096), 0, (4096, 4096, 4096)),
    ((4096, 4096, 4095), 0, (4096, 4096, 4096)),
    ((4095, 4095, 4095), 0, (4096, 4096, 4096)),
    ((4090, 4090, 4090), 0, (4096, 4096, 4096)),
    ((4096, 4096, 4094), 0, (4096, 4096, 4096)),
    ((4096, 4096, 4092), 0, (4096, 4096, 4096)),
    ((4096, 4096, 4096), 1, (4096, 4096, 4096)),
    ((1024, 50257, 768), 0, (1024, 50304, 768)),
    ((2048, 50257, 4096), 0, (2048, 50304, 4096)),
)
"""Problems whose rows or pointers are not aligned to 16 bytes: extents, elements by which matrices are displaced, and
the extents of the aligned neighbour."""


def square(rung: Rung, group: TypeGroup, size: int) -> ProblemKey:
    """The square problem on which a rung is measured: B as its family usually takes it."""
    return group.key(size, size, size, b_major=usual_b_major(rung), sparse=rung.sparse)


def type_table_key(group: TypeGroup, *, sparse: bool = False, size: int | None = None) -> ProblemKey:
    """The problem on which a type is shown: K contiguous in both operands, as every type and the library take it."""
    size = size or (F64_SIZE if group == F64 else TYPE_TABLE_SIZE)
    return group.key(size, size, size, b_major="col", sparse=sparse)


def to_problem(
    key: ProblemKey, *, with_c: bool = False, offset: int = 0, displaced: str = "ABCD", padding: int = 0
) -> Problem:
    """The problem that a key names.

    Args:
        key: extents, types and layouts.
        with_c: it has a C.
        offset: elements from where memory is aligned to the beginning of matrices.
        displaced: which matrices begin there.
        padding: elements between lines, which are contiguous without it.
    """
    problem = Problem.dense(
        key.m, key.n, key.k, dtype(key.dtype), out=dtype(key.out), accumulator=dtype(key.accumulator),
        a_major=key.a_major, b_major=key.b_major, with_c=with_c, sparse=key.sparse, batch=key.batch,
    )  # fmt: skip

    def placed(name: str, operand: Operand) -> Operand:
        stride, unit = operand.leading_dimension + padding, max(operand.dtype.bits, 8)
        distances = [stride * operand.dtype.bits // 8] if padding else [operand.alignment_bytes]
        distances += [offset * unit // 8] if name in displaced else []
        return replace(operand, leading_dimension=stride, alignment_bytes=alignment_of(*distances))

    c = placed("C", problem.c) if problem.c is not None else None
    return replace(problem, a=placed("A", problem.a), b=placed("B", problem.b), c=c, d=placed("D", problem.d))


def to_key(problem: Problem) -> ProblemKey:
    """The key of a contiguous problem."""
    return ProblemKey(
        problem.m, problem.n, problem.k, problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name,
        problem.b.major, problem.a.major, problem.a.sparse, problem.batch,
    )  # fmt: skip


def limit_tflops(name: str, key: ProblemKey) -> float:
    """TFLOP/s (TOP/s) at which the reference GPU can issue the instruction of a rung."""
    return issue_tflops(rung_named(name), key.dtype, sparse=key.sparse)


@lru_cache(maxsize=256)
def groups_of(rung: Rung, arch: str, groups: tuple[TypeGroup, ...] | None = None) -> tuple[TypeGroup, ...]:
    """The groups whose problems a rung takes; by default of those that its family is compared in.

    FP32 rungs are compared with FP32. Rungs of float16 are compared in both accumulators where they take both.
    """
    found = []
    if groups is None:
        fp8_alone = all(name.startswith("float8") for name in rung.dtypes)
        groups = SWEPT_FP8 if fp8_alone else (F32,) if rung.dtypes == ("float32",) else SWEPT[rung.family]
    for group in groups:
        if group.dtype == "float16" and "float32" in rung.dtypes:
            continue
        problem = to_problem(square(rung, group, 512))
        if group.dtype in rung.dtypes and default_config(rung, problem, arch) is not None:
            found.append(group)
    return tuple(found)


@lru_cache(maxsize=4096)
def default_config(rung: Rung, problem: Problem, arch: str) -> Config | None:
    """The configuration an untuned plan takes, or None when none is legal."""
    usual = rung.default_config(problem, usual_device(arch))
    if illegal(rung, problem, usual, usual_device(arch)) is None:
        return usual
    try:
        return make_plan(problem, rung=rung.name, arch=arch).config
    except UnsupportedError:
        return None
