"""What is to be computed: D = alpha * A @ B + beta * C, as a frozen description without any data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from warptile.dtypes import DType
from warptile.epilogue.fused_epilogue import Fused
from warptile.errors import DTypeError, ShapeError
from warptile.quantization import Quantization

MAX_ALIGNMENT_BYTES = 16

LINE_BYTES = 128
"""Lines that warptile lays out itself and that are at least this long start at multiples of it: an L2 line (4 sectors
of 32 bytes)."""


@dataclass(frozen=True)
class Operand:
    """One matrix in memory.

    Attributes:
        dtype: element type.
        major: layout: ``"row"`` for row-major (a row is contiguous), ``"col"`` for column-major.
        leading_dimension: elements from one row (column) to the next, 0 for a C all of whose rows are one; of A and B
            ``alignment_bytes`` divides its bytes also where there is a single row (column), since kernels form the
            address of the next one.
        alignment_bytes: largest power of two, at most 16, that divides the base address and the byte distance of
            every row (column) and of every matrix of a batch; it decides how wide a load may be.
        sparse: half of the elements along K are stored, the others are zero; metadata says which
        (`warptile.arrays.sparse`).
        batch_stride: elements from one matrix of a batch to the next; 0: all share one, or there is one.
        quantized: how its elements are stored as codes, in packed blocks (`warptile.quantization`); of B alone, None
            where they are stored as they are.
        sliced: what is in memory is a `warptile.SplitMatrix` (`warptile.slicing`): behind its lines along K, which are
            float32 as any others, stand their float16 slices.
    """

    dtype: DType
    major: str
    leading_dimension: int
    alignment_bytes: int = MAX_ALIGNMENT_BYTES
    sparse: bool = False
    batch_stride: int = 0
    quantized: Quantization | None = None
    sliced: bool = False

    def __post_init__(self) -> None:
        assert self.major in ("row", "col"), self.major
        assert self.alignment_bytes in (1, 2, 4, 8, 16), self.alignment_bytes
        assert self.batch_stride >= 0, self.batch_stride

    def __str__(self) -> str:
        parts = [f"{self.dtype.name}, {'row' if self.major == 'row' else 'column'}-major"]
        if self.quantized is not None:
            parts.append(str(self.quantized))
        else:
            parts.append(f"leading dimension {self.leading_dimension}, aligned to {self.alignment_bytes} bytes")
        if self.batch_stride:
            parts.append(f"{self.batch_stride} elements from matrix to matrix")
        if self.sparse:
            parts.append("2:4 sparse")
        return ", ".join(parts)

    @property
    def flipped(self) -> Operand:
        """The same memory with rows and columns exchanged."""
        # As `replace` does in twice the time: of each problem that is planned, three operands.
        return Operand(**{**vars(self), "major": "col" if self.major == "row" else "row"})

    @property
    def vector_elements(self) -> int:
        """Elements of the widest legal load: ``alignment_bytes`` over the element's bytes, at least one."""
        return max(1, self.alignment_bytes * 8 // self.dtype.bits)


def alignment_of(*byte_distances: int) -> int:
    """Largest power of two, at most 16, that divides all the given addresses and byte distances."""
    return gcd(MAX_ALIGNMENT_BYTES, *byte_distances)


def padded_stride(units: int, unit_bytes: int) -> int:
    """The least stride of lines of ``units`` that is a multiple of 16 bytes, and of 128 where a line has as many."""
    line_bytes = units * unit_bytes
    step = LINE_BYTES if line_bytes >= LINE_BYTES else MAX_ALIGNMENT_BYTES
    return max(-(-line_bytes // step), 1) * step // unit_bytes


@dataclass(frozen=True)
class Problem:
    """D[m, n] = alpha * (A[m, k] @ B[k, n]) + beta * C[m, n], or an epilogue of that, for each of ``batch`` matrices.

    ``c`` is None when beta is zero: C is then never read. D is row-major, as C is. ``ieee``: float32 products are
    multiply-adds of IEEE 754 along K, and no others that are as accurate. ``batch_invariant``: an element
    of D has the same bits whatever M is (docs/batch-invariance.md); configurations that would change them are not
    legal.

    Raises:
        ShapeError: a negative extent, no matrix in the batch, or one whose matrices share D or are sparse.
        DTypeError: A and B of different types.
    """

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand | None
    d: Operand
    accumulator: DType
    batch: int = 1
    epilogue: Fused | None = None
    ieee: bool = False
    batch_invariant: bool = False

    def __hash__(self) -> int:
        """Of what tells most problems apart: a plan looks its problem up many times."""
        a, b, d = self.a, self.b, self.d
        return hash((self.m, self.n, self.k, self.batch, a.dtype.name, a.major, b.major, d.dtype.name))

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
        self._check_batch()

    def _check_batch(self) -> None:
        if self.batch < 1:
            raise ShapeError(f"batch: got {self.batch}; it is at least 1, a single matrix")
        if self.batch > 1 and self.d.batch_stride == 0:
            raise ShapeError(f"d: batch_stride is 0 and batch is {self.batch}; each product needs a D of its own")
        if self.batch > 1 and self.a.sparse:
            raise ShapeError(
                f"a is sparse and batch is {self.batch}; only dense matrices come in batches: a.to_dense()"
            )
        if self.batch == 1:
            for name, each in (("a", self.a), ("b", self.b), ("c", self.c), ("d", self.d)):
                if each is not None and each.batch_stride:
                    raise ShapeError(f"{name}: batch_stride is not 0 and batch is 1; a single matrix has no next one")

    @property
    def flops(self) -> int:
        """Floating-point (or integer) operations: 2 m n k of each matrix of the batch."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def reads_matrix_c(self) -> bool:
        """Whether C is a matrix: not where there is none, or one row for all rows of D, as a bias is."""
        return self.c is not None and self.c.leading_dimension != 0

    @property
    def operand_matrices(self) -> tuple[int, int]:
        """Matrices of A and of B in memory: one, or as many as the batch has."""
        return self.batch if self.a.batch_stride else 1, self.batch if self.b.batch_stride else 1

    @cached_property
    def swapped(self) -> Problem:
        """The same with operands swapped, D^T = B^T A^T: the same memory, described with rows and columns exchanged."""

        c = self.c.flipped if self.c is not None else None
        epilogue = self.epilogue.transposed if self.epilogue is not None else None
        return replace(
            self, m=self.n, n=self.m, a=self.b.flipped, b=self.a.flipped, c=c, d=self.d.flipped, epilogue=epilogue
        )

    @property
    def single(self) -> Problem:
        """One matrix of the batch, in the same layout."""

        def alone(operand: Operand) -> Operand:
            return replace(operand, batch_stride=0)

        c = alone(self.c) if self.c is not None else None
        epilogue = self.epilogue.single if self.epilogue is not None else None
        return replace(self, a=alone(self.a), b=alone(self.b), c=c, d=alone(self.d), batch=1, epilogue=epilogue)

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
        batch: int = 1,
    ) -> Problem:
        """Contiguous matrices: A as [M, K] (``"row"``) or stored as [K, M] (``"col"``), B as [K, N] or stored as
        [N, K], row-major C and D, each ``batch`` times one after the other. With ``sparse`` A is stored as [M, K / 2]
        and metadata."""

        def operand(element: DType, rows: int, columns: int, major: str = "row") -> Operand:
            lines, line = (rows, columns) if major == "row" else (columns, rows)
            stride, line = max(lines, 1) * max(line, 1) if batch > 1 else 0, max(line, 1)
            aligned = alignment_of(line * element.bits // 8, stride * element.bits // 8)
            return Operand(element, major, line, aligned, batch_stride=stride)

        return Problem(
            m, n, k,
            a=replace(operand(dtype, m, k // 2), sparse=True) if sparse else operand(dtype, m, k, a_major),
            b=operand(dtype, k, n, b_major),
            c=operand(out, m, n) if with_c else None,
            d=operand(out, m, n),
            accumulator=accumulator,
            batch=batch,
        )  # fmt: skip
