"""Splitting: writing a float32 operand as two float16 slices with scaled lines, before the GEMM that multiplies them.

A line is a row of A or a column of B, along K; those of a batch are numbered one after the other. What the slices are:
`FILE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warptile.arch import H200, Device
from warptile.launch.access import Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, LaunchSpec
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand
from warptile.rungs.repack import power_of_two
from warptile.slicing import SLICE_BYTES, SlicedLines

FILE = "repack/splitting_pass.cuh"
"""The kernels, below ``kernels/``."""

THREADS = 256
"""Threads of a CTA."""

DRAM_SHARE = {False: 1.3, True: 0.66}
"""Bytes per second over DRAM's bandwidth, where lines are contiguous and where they are transposed: constants of a sum
with the times below, not limits of the GPU. Fitted with `warptile.rungs.wgmma.split_cost`, as are those."""

CTA_S, RESIDENT_CTAS = 2.96e-6, 1056
"""How long a CTA takes for contiguous lines, and how many do so at a time."""

BLOCK_S, TRANSPOSING_CTAS = 0.38e-6, 396
"""How long a CTA takes to transpose 32 lines of `BLOCK` along K, and how many do so at a time."""

ACROSS_LINES, BLOCK = 32, 64
"""Lines of a CTA where neighbouring elements are of neighbouring lines, and elements of each that it transposes at a
time: as in `FILE`."""

VECTOR, HELD_VECTORS, HELD_BLOCKS = 4, 4, 4
"""Neighbouring elements that a thread loads together, and how many such vectors of a line, or blocks, stay in
registers: as in `FILE`. With more of a line the source is read twice."""

LEAST_THREADS = 8
"""Threads that share a contiguous line at least."""

MANY_THREADS = H200.multiprocessors * 1024
"""Threads up to which more of them share a line than must: half of those that an H200 holds. An estimate."""

MOST_PARTS = 8
"""CTAs of a cluster at most: one for each warp of `THREADS`, and the most that every launch may have."""

LONG_LINE = HELD_VECTORS * VECTOR * THREADS
"""Elements along K that each of the CTAs that share a contiguous line has at least."""


@dataclass(frozen=True)
class Split:
    """How one operand is split, or those of a batch.

    Attributes:
        source: operand that is read, such as ``"A"``: float32.
        lines: rows of A, or columns of B, in one matrix.
        k: elements of a line.
        line_stride: elements from one line to the next.
        k_stride: elements from one element of a line to the next; this or ``line_stride`` is 1.
        source_alignment_bytes: as `Operand.alignment_bytes` of the source.
        kept: its slices are there already, behind it (`warptile.slicing`): the pass leaves it out.
        matrices: of the batch; 1 where all share one.
        matrix_stride: elements from one matrix to the next; 0 where there is one.
    """

    source: str
    lines: int
    k: int
    line_stride: int
    k_stride: int
    source_alignment_bytes: int
    kept: bool = False
    matrices: int = 1
    matrix_stride: int = 0

    def __post_init__(self) -> None:
        assert 1 in (self.line_stride, self.k_stride), self
        assert self.matrices == 1 or not self.kept, self

    @property
    def all_lines(self) -> int:
        """Lines of all matrices."""
        return self.matrices * self.lines

    @property
    def matrix_lines(self) -> int:
        """Lines from one matrix of the batch to the next; 0 where all share one."""
        return self.lines if self.matrices > 1 else 0

    @property
    def target(self) -> str:
        """Name of the memory of both slices: all lines of the high one, then all of the low one."""
        return self.source if self.kept else f"split {self.source}"

    @property
    def slices_offset_bytes(self) -> int:
        """Where in `target` they begin."""
        return self._lines.slices_offset_bytes if self.kept else 0

    @property
    def exponents(self) -> str:
        """Name of the memory of the lines' exponents, 32-bit integers."""
        return self.source if self.kept else f"exponents of {self.source}"

    @property
    def exponents_pointer(self) -> Pointer:
        """Where they are."""
        return Pointer(self.exponents, self._lines.exponents_offset_bytes if self.kept else 0)

    @property
    def _lines(self) -> SlicedLines:
        return SlicedLines(self.all_lines, self.k)

    @property
    def target_stride(self) -> int:
        """Elements from one line of a slice to the next. What is between lines is never written and never read."""
        return self._lines.slice_stride

    @property
    def slice_elements(self) -> int:
        """Elements from the high slice to the low one."""
        return self.all_lines * self.target_stride

    @property
    def targets(self) -> tuple[tuple[str, int, Rows], ...]:
        """What the pass writes: name, bytes, and which elements."""
        if self.kept:
            return ()
        lines, stride_bytes = self.all_lines, self.target_stride * SLICE_BYTES
        return (
            (self.target, 2 * lines * stride_bytes, Rows(2 * lines, self.k, SLICE_BYTES, stride_bytes)),
            (self.exponents, 4 * lines, Rows(1, lines, 4, 4 * lines)),
        )

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read and written. What is read twice of long lines is in a cache the second time."""
        return 2 * 4 * self.all_lines * self.k

    def seconds(self, device: Device) -> float:
        """Predicted time, without the launch."""
        moving_s = self.moved_bytes / (device.dram_bytes_per_s * DRAM_SHARE[self.transposed])
        if not self.transposed:
            return moving_s + self.ctas / RESIDENT_CTAS * CTA_S
        blocks = -(-self.k // (BLOCK * self.cluster)) * -(-self.ctas // TRANSPOSING_CTAS)
        return moving_s + blocks * BLOCK_S

    @property
    def transposed(self) -> bool:
        """Whether lines are not contiguous in the source."""
        return self.k_stride != 1

    @property
    def way(self) -> str:
        """The C++ type that splits lines."""
        way = "Across" if self.transposed else "ByLines"
        return f"operand_split::{way}<{str(self.source_alignment_bytes >= MAX_ALIGNMENT_BYTES).lower()}>"

    @property
    def cluster(self) -> int:
        """CTAs that share lines, each with a part of K, in a cluster."""
        if not self.transposed:
            return _power_of_two_within(min(MOST_PARTS, self.k // LONG_LINE, RESIDENT_CTAS // max(self.all_lines, 1)))
        blocks = -(-self.k // BLOCK)
        parts = min(power_of_two(-(-blocks // HELD_BLOCKS)), MOST_PARTS)
        return _more(parts, min(MOST_PARTS, blocks), TRANSPOSING_CTAS // max(self._groups, 1))

    @property
    def _groups(self) -> int:
        """Groups of lines that are transposed together."""
        return self.matrices * -(-self.lines // ACROSS_LINES)

    @property
    def shared_by(self) -> int:
        """CTAs that share a line that is transposed; threads that share a contiguous one."""
        if self.transposed or self.cluster > 1:
            return self.cluster * (1 if self.transposed else THREADS)
        vectors = -(-self.k // VECTOR)
        least = min(max(power_of_two(-(-vectors // HELD_VECTORS)), LEAST_THREADS), THREADS)
        return _more(least, min(vectors, THREADS), MANY_THREADS // max(self.all_lines, 1))

    @property
    def ctas(self) -> int:
        """CTAs for this operand."""
        if self.transposed:
            return self._groups * self.cluster
        return -(-self.all_lines * self.shared_by // THREADS)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Kernel arguments for this operand."""
        return (
            Pointer(self.source),
            Pointer(self.target),
            Pointer(self.exponents),
            Scalar("u32", self.lines),
            Scalar("u32", self.matrices),
            Scalar("s32", self.k),
            Scalar("s64", self.line_stride),
            Scalar("s64", self.k_stride),
            Scalar("s64", self.matrix_stride),
            Scalar("s64", self.target_stride),
            Scalar("s32", self.shared_by),
        )


def _power_of_two_within(most: int) -> int:
    """The largest power of two that is at most ``most``, or 1."""
    return 1 << max(most.bit_length() - 1, 0)


def _more(least: int, *limits: int) -> int:
    """The largest power of two that none of ``limits`` is below, or ``least`` where that is more."""
    return max(least, _power_of_two_within(min(limits)))


def split_of(name: str, operand: Operand, lines: int, k: int, batch: int = 1) -> Split:
    """How to split an operand of the problem.

    Args:
        name: ``"A"`` or ``"B"``.
        operand: its layout.
        lines: M of A, N of B.
        k: extent along K.
        batch: matrices of the batch, which may all share one.
    """
    along_k = operand.major == ("row" if name == "A" else "col")
    strides = (operand.leading_dimension, 1) if along_k else (1, operand.leading_dimension)
    matrices = batch if operand.batch_stride else 1
    return Split(
        name, lines, k, *strides, operand.alignment_bytes, operand.sliced, matrices,
        operand.batch_stride if matrices > 1 else 0,
    )  # fmt: skip


def name_expression(splits: Sequence[Split]) -> str:
    """The C++ name of the kernel that splits one or two operands."""
    count = "one" if len(splits) == 1 else "two"
    return f"operand_split::split_{count}<{', '.join(each.way for each in splits)}>"


def launch(splits: Sequence[Split], entry: str) -> LaunchSpec:
    """The splitting pass: one launch for one or two operands, of the compiled kernel whose lowered symbol is
    ``entry``."""
    arguments = [argument for each in splits for argument in each.arguments]
    cluster = max(each.cluster for each in splits)
    ctas = [-(-each.ctas // cluster) * cluster for each in splits]  # no cluster has CTAs of both operands
    if len(splits) == 2:
        arguments.append(Scalar("s32", ctas[0]))
    return LaunchSpec(
        entry=entry,
        grid=(sum(ctas), 1, 1),
        block=(THREADS, 1, 1),
        cluster=(cluster, 1, 1),
        arguments=tuple(arguments),
        overlaps_previous=True,
    )
