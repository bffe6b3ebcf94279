"""What is to be computed: D = alpha * A @ B + beta * C, as a frozen description without any data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from warptile.dtypes import DType
from warptile.errors import DTypeError, ShapeError

MAX_ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class Operand:
    """One matrix in memory.

    Attributes:
        dtype: element type.
        major: ``"row"`` (a row is contiguous) or ``"col"`` (a column is contiguous).
        leading_dimension: elements from one row (column) to the next.
        alignment_bytes: largest power of two, at most 16, that divides the base address and the byte distance of
            every row (column); it decides how wide a load may be.
        sparse: half of the elements along K are stored, the others are zero; metadata says which (`warptile.sparse`).
    """

    dtype: DType
    major: str
    leading_dimension: int
    alignment_bytes: int = MAX_ALIGNMENT_BYTES
    sparse: bool = False

    def __post_init__(self) -> None:
        assert self.major in ("row", "col"), self.major
        assert self.alignment_bytes in (1, 2, 4, 8, 16), self.alignment_bytes

    @property
    def vector_elements(self) -> int:
        """Elements of the widest legal load: ``alignment_bytes`` over the element's bytes, at least one."""
        return max(1, self.alignment_bytes * 8 // self.dtype.bits)


def alignment_of(*byte_distances: int) -> int:
    """Largest power of two, at most 16, that divides all the given addresses and byte distances."""
    return gcd(MAX_ALIGNMENT_BYTES, *byte_distances)


@dataclass(frozen=True)
class Problem:
    """D[m, n] = alpha * (A[m, k] @ B[k, n]) + beta * C[m, n].

    ``c`` is None when beta is zero: C is then never read. D is row-major, as C is.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    accumulator: DType

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 0:
            raise ShapeError(
                f"m, n, k: got {(self.m, self.n, self.k)}; every extent must be >= 0, such as (193, 161, 97)"
            )
        if self.a.dtype != self.b.dtype:
            raise DTypeError(
                f"a is {self.a.dtype.name} and b is {self.b.dtype.name}; both operands need one type: "
                f"b.astype('{self.a.dtype.numpy}')"
            )

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations: 2 m n k."""
        return 2 * self.m * self.n * self.k

    def displaced(self, elements: int) -> Problem:
        """The same with each matrix ``elements`` (of a byte at least) further on in memory, maybe less aligned."""

        def moved(operand: Operand) -> Operand:
            distance = elements * max(operand.dtype.bits, 8) // 8
            return replace(operand, alignment_bytes=alignment_of(operand.alignment_bytes, distance))

        c = moved(self.c) if self.c is not None else None
        return replace(self, a=moved(self.a), b=moved(self.b), c=c, d=moved(self.d))

    @staticmethod
    def dense(
        m: int,
        n: int,
        k: int,
        dtype: DType,
        *,
        out: DType,
        accumulator: DType,
        a_major: str = "row",
        b_major: str = "row",
        with_c: bool = False,
        sparse: bool = False,
    ) -> Problem:
        """Contiguous matrices: A as [M, K] (``"row"``) or stored as [K, M] (``"col"``), B as [K, N] or stored as
        [N, K], row-major C and D. With ``sparse`` A is stored as [M, K / 2] and metadata."""

        def operand(element: DType, columns: int, major: str = "row") -> Operand:
            columns = max(columns, 1)
            return Operand(element, major, columns, alignment_of(columns * element.bits // 8))

        a = operand(dtype, k if a_major == "row" else m, a_major)
        return Problem(
            m, n, k,
            a=replace(operand(dtype, k // 2), sparse=True) if sparse else a,
            b=operand(dtype, n if b_major == "row" else k, b_major),
            c=operand(out, n) if with_c else None,
            d=operand(out, n),
            accumulator=accumulator,
        )  # fmt: skip
