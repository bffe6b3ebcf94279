"""Operands that are rewritten before the product: onto 16-byte boundaries, or with the other axis contiguous.

Tensor copies (TMA) need a base address and line strides that are multiples of 16 bytes, and the warpgroup instructions
of tf32, 8-bit floats and integers need both operands contiguous along K. An operand that lies otherwise is copied
first, by a launch of its own on the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warptile.launch import LaunchSpec, Pointer, Rows, Scalar
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

LINES_PER_THREAD = 4
"""Lines of which a thread of ``copy_lines`` moves a piece: ``LINES`` there."""

TILE_LINES, TILE_BYTES = 128, 128
"""What a block of ``copy_transposed`` moves at a time."""

MAX_GRID_Y = 65535
"""Most blocks along y; blocks take further lines in turn."""


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

    @property
    def name_expression(self) -> str:
        """The C++ name of the kernel's instantiation."""
        aligned = "true" if self.source_alignment_bytes >= MAX_ALIGNMENT_BYTES else "false"
        return f"operand_copies::copy_{'transposed' if self.transposed else 'lines'}<{self.unit_bytes}, {aligned}>"

    @property
    def written(self) -> Rows:
        """What of the target is written: its lines without what lies between them."""
        return Rows(self.target_lines, self.target_units, self.unit_bytes, self.target_stride * self.unit_bytes)

    def launch(self, entry: str) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``; without blocks if nothing moves."""
        line_bytes = self.units * self.unit_bytes
        block = (THREADS, 1) if self.transposed else _lines_block(-(-line_bytes // MAX_ALIGNMENT_BYTES), self.lines)
        if self.transposed:
            along, across = TILE_BYTES, TILE_LINES
        else:
            along, across = block[0] * MAX_ALIGNMENT_BYTES, block[1] * LINES_PER_THREAD
        return LaunchSpec(
            entry=entry,
            grid=(-(-line_bytes // along), min(-(-self.lines // across), MAX_GRID_Y), 1),
            block=(*block, 1),
            arguments=(
                Pointer(self.source),
                Pointer(self.target),
                Scalar("s64", self.lines),
                Scalar("s64", line_bytes),
                Scalar("s64", self.source_stride * self.unit_bytes),
                Scalar("s64", self.target_stride * self.unit_bytes),
            ),
            overlaps_previous=True,
        )


def _lines_block(pieces: int, lines: int) -> tuple[int, int]:
    """Threads along a line of so many pieces of 16 bytes, and along lines: a warp along a line if it is long enough,
    more where there are few lines; powers of two."""

    def power_of_two(least: int) -> int:
        return 1 << max(least - 1, 0).bit_length()

    along = min(power_of_two(pieces), WARP_LANES)
    across = min(THREADS // along, power_of_two(-(-lines // LINES_PER_THREAD)))
    return min(power_of_two(pieces), THREADS // across), across


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
