"""Repacking: rewriting a misaligned operand onto 16-byte boundaries, or transposing it, before the GEMM.

TMA needs a base address and line strides that are multiples of 16 bytes, and the wgmma instructions of tf32, 8-bit
floats and integers need both operands K-major. Other operands are repacked by one launch before the GEMM's on the same
stream, or by warps of the GEMM itself (`warptile.rungs.wgmma.fused_repack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from warptile.arch import H200, Device
from warptile.launch.access import Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, LaunchSpec
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, padded_stride

UNIT_BYTES = (1, 2, 4)
"""Sizes of a unit: repacking moves bits, whatever they mean."""

FILE = "repack/repacking_pass.cuh"
"""The kernels, below ``kernels/``."""

WARP_LANES = 32
THREADS = 256
"""Threads of a CTA."""

LINES = 2
"""Lines from which each thread moves 16 bytes: as in `FILE`."""

TRANSPOSED_ALONG, TRANSPOSED_LINES = 8, 128
"""16-byte chunks along a line, and lines, that a CTA transposes: as in `FILE`."""


def repacked_name(name: str) -> str:
    """Name of the memory that holds the repacked operand ``name``."""
    return f"repacked {name}"


@dataclass(frozen=True)
class Repack:
    """How one operand is rewritten into another buffer: a matrix, or each one of a batch.

    A line is what is contiguous in the source: a row of a row-major matrix, a column of a column-major one. A unit is
    one element, or a byte of several packed elements.

    Attributes:
        source: operand that is read, such as ``"A"``.
        target: name of the memory that is written, such as ``"repacked A"``; it starts at a multiple of 256 bytes.
        lines: lines of a matrix of the source.
        units: units of a line of the source.
        source_stride: units from one line of the source to the next.
        unit_bytes: 1, 2 or 4.
        source_alignment_bytes: as `Operand.alignment_bytes` of the source.
        transposed: the target has ``units`` lines of ``lines`` units; else it has the source's lines.
        target_stride: units from one line of the target to the next, a multiple of 16 bytes. The padding
            between lines is undefined: nothing may read it, and TMA, whose tensor maps state how long lines are, does
            not.
        matrices: of the batch. Those of the target follow each other without a gap.
        source_matrix_stride: units from one matrix of the source to the next.
    """

    source: str
    target: str
    lines: int
    units: int
    source_stride: int
    unit_bytes: int
    source_alignment_bytes: int
    transposed: bool
    target_stride: int
    matrices: int = 1
    source_matrix_stride: int = 0

    def __post_init__(self) -> None:
        assert self.unit_bytes in UNIT_BYTES, self.unit_bytes
        assert min(self.lines, self.units) >= 0, self
        assert self.lines <= 1 or self.source_stride >= self.units, self
        assert self.target_stride >= self.target_units, self
        assert self.target_stride * self.unit_bytes % MAX_ALIGNMENT_BYTES == 0, self
        assert self.source_alignment_bytes % self.unit_bytes == 0, self
        assert self.matrices >= 1, self

    @property
    def target_lines(self) -> int:
        """Lines of a matrix of the target."""
        return self.units if self.transposed else self.lines

    @property
    def target_units(self) -> int:
        """Units of a line of the target that are written."""
        return self.lines if self.transposed else self.units

    @property
    def target_matrix_stride(self) -> int:
        """Units from one matrix of the target to the next."""
        return self.target_lines * self.target_stride

    @property
    def target_bytes(self) -> int:
        """Size of the target."""
        return self.matrices * self.target_matrix_stride * self.unit_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read and written: twice the operand's size."""
        return 2 * self.matrices * self.lines * self.units * self.unit_bytes

    def seconds(self, device: Device) -> float:
        """Predicted time, without the launch."""
        return self.moved_bytes / device.dram_bytes_per_s

    def tile_type(self, once: bool) -> str:
        """The C++ type that repacks a tile; with ``once`` it marks the source evict-first in L2."""
        aligned = self.source_alignment_bytes >= MAX_ALIGNMENT_BYTES
        switches = f"{self.unit_bytes}, {str(aligned).lower()}, {str(once).lower()}"
        return f"operand_repack::{'Transposed' if self.transposed else 'Straight'}<{switches}>"

    @property
    def threads_along(self) -> int:
        """Threads of a CTA along a line, each with 16 bytes, a power of two: a warp if lines are long enough, more
        where there are few lines. Transposed: 16-byte chunks."""
        if self.transposed:
            return TRANSPOSED_ALONG
        pieces = power_of_two(-(-self.units * self.unit_bytes // MAX_ALIGNMENT_BYTES))
        across = min(THREADS // min(pieces, WARP_LANES), power_of_two(-(-self.lines // LINES)))
        return min(pieces, THREADS // across)

    @property
    def matrix_tiles(self) -> int:
        """CTAs of the launch for a matrix of this operand."""
        along = self.threads_along
        across = TRANSPOSED_LINES if self.transposed else THREADS // along * LINES
        return -(-self.units * self.unit_bytes // (along * MAX_ALIGNMENT_BYTES)) * -(-self.lines // across)

    @property
    def tiles(self) -> int:
        """CTAs of the launch for this operand."""
        return self.matrices * self.matrix_tiles

    @property
    def written(self) -> Rows:
        """The part of the target that is written: its lines without the padding between them."""
        lines = self.matrices * self.target_lines
        return Rows(lines, self.target_units, self.unit_bytes, self.target_stride * self.unit_bytes)

    @property
    def targets(self) -> tuple[tuple[str, int, Rows], ...]:
        """What is written: name, bytes, and which elements."""
        return ((self.target, self.target_bytes, self.written),)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Kernel arguments for this operand."""
        return (
            Pointer(self.source),
            Pointer(self.target),
            Scalar("s64", self.lines),
            Scalar("s64", self.units * self.unit_bytes),
            Scalar("s64", self.source_stride * self.unit_bytes),
            Scalar("s64", self.target_stride * self.unit_bytes),
            Scalar("s64", self.source_matrix_stride * self.unit_bytes),
            Scalar("s64", self.target_matrix_stride * self.unit_bytes),
            Scalar("s32", self.matrix_tiles),
            Scalar("s32", self.threads_along),
        )


def power_of_two(least: int) -> int:
    """The least power of two that is not below ``least``."""
    return 1 << max(least - 1, 0).bit_length()


def name_expression(repacks: Sequence[Repack]) -> str:
    """The C++ name of the kernel that repacks one or two operands.

    Sources are evict-first in L2 where targets fit into it and sources and targets together do not.
    """
    written = sum(each.target_bytes for each in repacks)
    once = written <= H200.l2_bytes < sum(each.moved_bytes for each in repacks)
    count = "one" if len(repacks) == 1 else "two"
    return f"operand_repack::repack_{count}<{', '.join(each.tile_type(once) for each in repacks)}>"


def launch(repacks: Sequence[Repack], entry: str) -> LaunchSpec:
    """The repacking pass: one launch for one or two operands, of the compiled kernel whose lowered symbol is ``entry``.
    Its grid is empty if there is nothing to repack."""
    arguments = [argument for each in repacks for argument in each.arguments]
    if len(repacks) == 2:
        arguments.append(Scalar("s32", repacks[0].tiles))
    return LaunchSpec(
        entry=entry,
        grid=(sum(each.tiles for each in repacks), 1, 1),
        block=(THREADS, 1, 1),
        arguments=tuple(arguments),
        overlaps_previous=True,
    )


class _Copies(Protocol):
    def seconds(self, device: Device) -> float: ...


PASS_LAUNCH_S = 1.6e-6
"""Seconds that the launch of the pass adds to that of the GEMM, which begins while the pass ends: from timings of 40
small misaligned bfloat16 problems on an H200 (2026-11-29, no record)."""


def repacking_ms(repacks: Sequence[_Copies], device: Device = H200) -> float:
    """Predicted time of the pass before a GEMM that repacks, splits or dequantizes operands, with its launch; 0 without
    copies."""
    copying_s = sum(each.seconds(device) for each in repacks)
    return (copying_s + PASS_LAUNCH_S) * 1e3 if copying_s else 0.0


FUSED_SHARE = 0.4
"""Time that repacking adds to the GEMM when it is fused, as a share of the time of the repacking pass. An estimate."""


def fused_repacking_ms(repacks: Sequence[Repack], device: Device = H200) -> float:
    """Predicted time that fused repacking adds to the GEMM."""
    return FUSED_SHARE * repacking_ms(repacks, device)


def repacked(
    name: str, operand: Operand, rows: int, columns: int, *, batch: int = 1, transposed: bool = False
) -> tuple[Operand, Repack]:
    """How to repack an operand of ``rows`` x ``columns`` elements, ``batch`` times unless all share one, and the
    repacked operand: on 16-byte boundaries, and with ``transposed`` in the other layout.

    Of a sparse operand half the columns are stored. Elements that share a byte, and float64, which moves as two units
    of 4 bytes, can be repacked, but not transposed.
    """
    columns = columns // 2 if operand.sparse else columns
    elements_per_unit = max(1, 8 // operand.dtype.bits)
    units_per_element = max(1, operand.dtype.bits // 32)
    assert not transposed or elements_per_unit == units_per_element == 1, "a transposed unit is a whole element"
    unit_bytes = max(operand.dtype.bits, 8) // 8 // units_per_element
    lines, line_elements = (rows, columns) if operand.major == "row" else (columns, rows)
    units = -(-line_elements // elements_per_unit) * units_per_element
    stride = padded_stride(lines if transposed else units, unit_bytes)
    matrices = batch if operand.batch_stride else 1
    of_source = operand.leading_dimension, operand.batch_stride if matrices > 1 else 0
    source_stride, source_matrix_stride = (each // elements_per_unit * units_per_element for each in of_source)
    of_target = (units if transposed else lines) * stride * (matrices > 1)
    if matrices > 1 and not transposed and source_matrix_stride == lines * source_stride >= lines * units:
        # One matrix with the lines of all: a CTA moves lines of several.
        matrices, lines, source_matrix_stride = 1, matrices * lines, 0
    repack = Repack(
        source=name,
        target=repacked_name(name),
        lines=lines,
        units=units,
        source_stride=source_stride,
        unit_bytes=unit_bytes,
        source_alignment_bytes=max(operand.alignment_bytes, unit_bytes),
        transposed=transposed,
        target_stride=stride,
        matrices=matrices,
        source_matrix_stride=source_matrix_stride,
    )
    major = {"row": "col", "col": "row"}[operand.major] if transposed else operand.major
    seen = replace(
        operand,
        major=major,
        leading_dimension=stride * elements_per_unit // units_per_element,
        alignment_bytes=MAX_ALIGNMENT_BYTES,
        batch_stride=of_target * elements_per_unit // units_per_element,
    )
    return seen, repack
