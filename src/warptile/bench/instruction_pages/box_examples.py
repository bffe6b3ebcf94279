"""Boxes of a tensor that pages of tensor copies show, placed by the code that moves the emulator's boxes."""

from __future__ import annotations

import numpy as np

from warptile.emulator.async_ops import tensor_boxes
from warptile.figures.figure import Figure
from warptile.figures.tma_box import PlacedBox, tma_box
from warptile.isa.swizzle import LINE_BYTES
from warptile.launch.tensor_map import SWIZZLE_BYTES, TensorMap

DTYPE, ELEMENT_BYTES = "f16", 2
WIDTH, HEIGHT, PITCH_BYTES = 100, 12, 208
"""Of the tensor, in elements; its last chunk of a row is half inside."""

ROWS = 8
COORDINATES = ((0, 0), (56, 6), (-16, -2))
"""A box inside, one over the far edges, one over the near edges."""


def tensor(swizzle: str) -> TensorMap:
    """The tensor, with boxes as wide as the swizzle permutes."""
    width = (SWIZZLE_BYTES[swizzle] or LINE_BYTES) // ELEMENT_BYTES
    return TensorMap("A", DTYPE, (WIDTH, HEIGHT), (PITCH_BYTES,), (width, ROWS), swizzle=swizzle)


def placed(swizzle: str, coordinates: tuple[int, int]) -> PlacedBox:
    """The box at some coordinates."""
    one = tensor(swizzle)
    chunks = tensor_boxes.chunks(one, np.array([coordinates], np.int64))
    offsets = tensor_boxes.slots(one, np.zeros(1, np.int64))[0]
    return PlacedBox(
        one.dtype, (WIDTH, HEIGHT), (one.box[0], ROWS), one.element_bytes, one.swizzle, coordinates,
        tuple(map(int, chunks.inside[0])), tuple(map(int, offsets)),
    )  # fmt: skip


def figure(*, stores: bool) -> Figure:
    """The boxes; of ``stores``, which take no negative coordinates, those at the others."""
    coordinates = [each for each in COORDINATES if not stores or min(each) >= 0]
    boxes = [placed(swizzle, each) for swizzle in SWIZZLE_BYTES for each in coordinates]
    modes = tuple(
        f"{span} bytes, box {tensor(mode).box[0]} wide" if span else f"none, box {tensor(mode).box[0]} wide"
        for mode, span in SWIZZLE_BYTES.items()
    )
    outside = "are not stored" if stores else "read as 0, or as NaN where the tensor map says so"
    notes = (
        "A cell is a chunk of 16 bytes, called by its row and its place in the row; choose one to find it in the "
        "other picture.",
        f"Hatched chunks are outside the tensor, half hatched ones partly: their elements {outside}. "
        "Bytes outside count as copied all the same.",
    )
    places = tuple(f"{x}, {y}" for x, y in coordinates)
    return tma_box("box", "A box of a two-dimensional tensor", (modes, places), boxes, notes)
