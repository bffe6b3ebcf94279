"""Operands that are rewritten before the product: onto 16-byte boundaries, or with the other axis contiguous.

Tensor copies (TMA) need a base address and line strides that are multiples of 16 bytes, and the warpgroup instructions
of tf32, 8-bit floats and integers need both operands contiguous along K. An operand that lies otherwise is copied
first, by a launch before the product's on the same stream: one for all operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from warptile.arch import H200, Device
from warptile.launch import Argument, LaunchSpec, Pointer, Rows, Scalar
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand

LINE_BYTES = 128
"""Lines of a copy start at multiples of it where a line has so much: an L2 line (4 sectors of 32 bytes)."""

UNIT_BYTES = (1, 2, 4)
"""Sizes of what is moved as one: a copy moves bits, whatever they mean."""

FILE = "copy/lines.cuh"
"""The kernels, below ``kernels/``."""

WARP_LANES = 32
THREADS = 256
"""Threads of a block."""

LINES = 2
"""Lines of which a thread moves 16 bytes: as in `FILE`."""

TRANSPOSED_ALONG, TRANSPOSED_LINES = 8, 128
"""Pieces of 16 bytes along a line, and lines, that a block transposes: as in `FILE`."""


def copy_of(name: str) -> str:
    """The name under which a launch finds the copy of the operand called ``name``."""
    return f"copy of {name}"


@dataclass(frozen=True)
class Copy:
    """One operand, rewritten into memory of its own.

    A line is what is contiguous in the source: a row of a row-major matrix, a column of a column-major one. A unit is
    one element (several, where they are packed into a byte).

    Attributes:
        source: operand that is read, such as ``"A"``.
        target: name of the memory that is written, such as ``"copy of A"``; it starts at a multiple of 256 bytes.
        lines: lines of the source.
        units: units of a line of the source.
        source_stride: units from one line of the source to the next.
        unit_bytes: 1, 2 or 4.
        source_alignment_bytes: as `Operand.alignment_bytes` of the source.
        transposed: the target has ``units`` lines of ``lines`` units; else it has the source's lines.
        target_stride: units from one line of the target to the next, a multiple of 16 bytes. What lies between the
            end of a line and the next line is not written, or holds anything: nothing may read it, and a tensor copy,
            which knows how long lines are, does not.
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

    def __post_init__(self) -> None:
        assert self.unit_bytes in UNIT_BYTES, self.unit_bytes
        assert min(self.lines, self.units) >= 0, self
        assert self.lines <= 1 or self.source_stride >= self.units, self
        assert self.target_stride >= self.target_units, self
        assert self.target_stride * self.unit_bytes % MAX_ALIGNMENT_BYTES == 0, self
        assert self.source_alignment_bytes % self.unit_bytes == 0, self

    @property
    def target_lines(self) -> int:
        """Lines of the target."""
        return self.units if self.transposed else self.lines

    @property
    def target_units(self) -> int:
        """Units of a line of the target that are written."""
        return self.lines if self.transposed else self.units

    @property
    def target_bytes(self) -> int:
        """Size of the target."""
        return self.target_lines * self.target_stride * self.unit_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that are read and written: twice the operand's."""
        return 2 * self.lines * self.units * self.unit_bytes

    def way(self, once: bool) -> str:
        """The C++ type that moves a tile, and tells L2 with ``once`` that the source is not read again."""
        aligned = self.source_alignment_bytes >= MAX_ALIGNMENT_BYTES
        switches = f"{self.unit_bytes}, {str(aligned).lower()}, {str(once).lower()}"
        return f"operand_copies::{'Transposed' if self.transposed else 'Straight'}<{switches}>"

    @property
    def threads_along(self) -> int:
        """Threads of a block along a line, each with 16 bytes, a power of two: a warp if lines are long enough, more
        where there are few lines. Transposed: pieces of 16 bytes."""
        if self.transposed:
            return TRANSPOSED_ALONG
        pieces = power_of_two(-(-self.units * self.unit_bytes // MAX_ALIGNMENT_BYTES))
        across = min(THREADS // min(pieces, WARP_LANES), power_of_two(-(-self.lines // LINES)))
        return min(pieces, THREADS // across)

    @property
    def tiles(self) -> int:
        """Blocks that it takes."""
        along = self.threads_along
        across = TRANSPOSED_LINES if self.transposed else THREADS // along * LINES
        return -(-self.units * self.unit_bytes // (along * MAX_ALIGNMENT_BYTES)) * -(-self.lines // across)

    @property
    def written(self) -> Rows:
        """What of the target is written: its lines without what lies between them."""
        return Rows(self.target_lines, self.target_units, self.unit_bytes, self.target_stride * self.unit_bytes)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Of the kernel, for this copy."""
        return (
            Pointer(self.source),
            Pointer(self.target),
            Scalar("s64", self.lines),
            Scalar("s64", self.units * self.unit_bytes),
            Scalar("s64", self.source_stride * self.unit_bytes),
            Scalar("s64", self.target_stride * self.unit_bytes),
            Scalar("s32", self.threads_along),
        )


def power_of_two(least: int) -> int:
    """The least power of two that is not below ``least``."""
    return 1 << max(least - 1, 0).bit_length()


def name_expression(copies: Sequence[Copy]) -> str:
    """The C++ name of the kernel that makes one or two copies.

    Sources leave L2 first where all that is read and written does not fit there and what is written does.
    """
    written = sum(each.target_bytes for each in copies)
    once = written <= H200.l2_bytes < sum(each.moved_bytes for each in copies)
    count = "one" if len(copies) == 1 else "two"
    return f"operand_copies::copy_{count}<{', '.join(each.way(once) for each in copies)}>"


def launch(copies: Sequence[Copy], entry: str) -> LaunchSpec:
    """The launch that makes one or two copies, of the compiled kernel whose lowered symbol is ``entry``; without blocks
    if nothing moves."""
    arguments = [argument for each in copies for argument in each.arguments]
    if len(copies) == 2:
        arguments.append(Scalar("s32", copies[0].tiles))
    return LaunchSpec(
        entry=entry,
        grid=(sum(each.tiles for each in copies), 1, 1),
        block=(THREADS, 1, 1),
        arguments=tuple(arguments),
        overlaps_previous=True,
    )


def copies_ms(copies: Sequence[Copy], device: Device = H200) -> float:
    """Predicted time of the launch that rewrites operands: every byte read and written once, and the launch; none where
    nothing is copied."""
    moved_bytes = sum(copy.moved_bytes for copy in copies)
    return (moved_bytes / device.dram_bytes_per_s + device.launch_s) * 1e3 if moved_bytes else 0.0


BESIDE_SHARE = 0.4
"""Of the time that copies before a product take, what they add to it when they are made beside it. On an H200 they
added 15 us for 34 at 4096 x 4096 x 4095 in bfloat16, and 41 for 128 at twice these extents (one run, no record)."""


def beside_ms(copies: Sequence[Copy], device: Device = H200) -> float:
    """Predicted time that copies beside a product add to it."""
    return BESIDE_SHARE * copies_ms(copies, device)


def padded_stride(units: int, unit_bytes: int) -> int:
    """The least stride of lines of ``units`` that is a multiple of 16 bytes, and of 128 where a line has as many."""
    line_bytes = units * unit_bytes
    step = LINE_BYTES if line_bytes >= LINE_BYTES else MAX_ALIGNMENT_BYTES
    return max(-(-line_bytes // step), 1) * step // unit_bytes


def copied(name: str, operand: Operand, rows: int, columns: int, *, transposed: bool = False) -> tuple[Operand, Copy]:
    """The copy of an operand of ``rows`` x ``columns`` elements, and how the kernel sees it: on 16-byte boundaries,
    and with ``transposed`` in the other major.

    Of a sparse operand half the columns are stored. Elements that share a byte can be copied, but not transposed.
    """
    columns = columns // 2 if operand.sparse else columns
    elements_per_unit = max(1, 8 // operand.dtype.bits)
    assert not (transposed and elements_per_unit > 1), "elements that share a byte cannot be transposed"
    unit_bytes = max(operand.dtype.bits, 8) // 8
    lines, line_elements = (rows, columns) if operand.major == "row" else (columns, rows)
    units = -(-line_elements // elements_per_unit)
    stride = padded_stride(lines if transposed else units, unit_bytes)
    copy = Copy(
        source=name,
        target=copy_of(name),
        lines=lines,
        units=units,
        source_stride=operand.leading_dimension // elements_per_unit,
        unit_bytes=unit_bytes,
        source_alignment_bytes=max(operand.alignment_bytes, unit_bytes),
        transposed=transposed,
        target_stride=stride,
    )
    major = {"row": "col", "col": "row"}[operand.major] if transposed else operand.major
    seen = replace(
        operand,
        major=major,
        leading_dimension=stride * elements_per_unit,
        alignment_bytes=MAX_ALIGNMENT_BYTES,
    )
    return seen, copy
