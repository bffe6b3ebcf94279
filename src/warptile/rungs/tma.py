"""What rungs of every family tell TMA: the tensor map of an operand, and limits of boxes and barriers."""

from __future__ import annotations

from warptile.launch.tensor_map import TensorMap
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand
from warptile.rungs.tensor_tiles import round_up

MAX_BOX = 256
"""Most elements along one side of a TMA box."""

MBARRIER_BYTES = 8
"""PTX ISA, "Size and alignment of mbarrier object"."""

MAP_TYPES = {
    16: {"f16": "f16", "bf16": "bf16"},
    32: {"tf32": "tf32", "f32": "f32", "s32": "s32"},
    64: {"f64": "f64"},
}
"""Type of a tensor map's elements by bits and PTX's name; units of a byte, whatever they hold, are ``u8``.
``tf32`` operands are rounded to 11 significant bits, to nearest, on their way."""


def map_type(operand: Operand) -> str:
    """Type of the elements of an operand's tensor map."""
    return MAP_TYPES.get(operand.dtype.bits, {}).get(operand.dtype.ptx, "u8")


def operand_map(
    name: str,
    operand: Operand,
    extents: tuple[int, int],
    box: tuple[int, int],
    swizzle: str,
    batch: int = 1,
) -> TensorMap:
    """The tensor map of A or B.

    Args:
        name: name of its memory.
        operand: its type and layout.
        extents: elements of a line, and lines.
        box: elements of a line that one copy moves (bytes, of types narrower than a byte), and lines.
        swizzle: how rows of the box are permuted in shared memory, such as ``"128B"``.
        batch: matrices of the batch; with more than one a third dimension counts them.
    """
    packed = max(1, 8 // operand.dtype.bits)
    line, lines = extents
    matrices, strides, one = batch_dimension(operand, batch)
    return TensorMap(
        name,
        map_type(operand),
        dims=(max(-(-line // packed), 1), max(lines, 1), *matrices),
        strides_bytes=strides,
        box=(*box, *one),
        swizzle=swizzle,
        l2_promotion="128B",
    )


def batch_dimension(operand: Operand, batch: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Matrices, strides of lines and matrices in bytes, and matrices of a box. The stride of a dimension of extent 1 is
    arbitrary."""
    line_bytes = round_up(operand.leading_dimension * operand.dtype.bits // 8, MAX_ALIGNMENT_BYTES)
    if batch == 1:
        return (), (line_bytes,), ()
    if operand.batch_stride == 0:
        return (1,), (line_bytes, line_bytes), (1,)
    return (batch,), (line_bytes, operand.batch_stride * operand.dtype.bits // 8), (1,)
