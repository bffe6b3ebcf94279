"""A box of a tensor that TMA copies: which of its chunks are inside the tensor, and where each is in shared memory.

The addresses come with the data: `warptile.figures` draws what the emulator's tensor copies compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.bank_map import BANKS, CHUNK_COLORS, GROUPS
from warptile.figures.figure import Cell, DataTable, Figure, joined, percentage
from warptile.figures.states import Choice, with_choices
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES


@dataclass(frozen=True)
class PlacedBox:
    """A two-dimensional box at some coordinates.

    Attributes:
        dtype: of the tensor's elements.
        dims: elements of the tensor, innermost first.
        box: elements of the box, innermost first.
        element_bytes: of one element.
        swizzle: the mode's name.
        coordinates: of the box's first element, innermost first.
        inside: of each chunk in the box's order, the bytes that belong to the tensor, 0 to 16.
        offsets: of each chunk, where it is in shared memory, in bytes from the start of the box.
    """

    dtype: str
    dims: tuple[int, int]
    box: tuple[int, int]
    element_bytes: int
    swizzle: str
    coordinates: tuple[int, int]
    inside: tuple[int, ...]
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.inside) != self.chunks * self.box[1]:
            raise ValueError(f"{len(self.inside)} chunks of a box of {self.chunks} x {self.box[1]}")
        if len(self.offsets) != len(self.inside) or len(set(self.offsets)) != len(self.offsets):
            raise ValueError("every chunk has an address of its own")

    @property
    def chunks(self) -> int:
        """Chunks of a row of the box."""
        return self.box[0] * self.element_bytes // CHUNK_BYTES

    @property
    def per_chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES // self.element_bytes


def tma_box(
    name: str, title: str, choices: tuple[tuple[str, ...], tuple[str, ...]], boxes: Sequence[PlacedBox],
    notes: tuple[Cell, ...] = (),
) -> Figure:  # fmt: skip
    """Boxes to choose from.

    Args:
        name: of the figure.
        title: its caption.
        choices: what the swizzle modes are called, and the coordinates.
        boxes: for each mode, those at all coordinates.
        notes: sentences below.
    """
    modes, places = choices
    keys = [(i, j) for i in range(len(modes)) for j in range(len(places))]
    states = [(key, _state(box)) for key, box in zip(keys, boxes, strict=True)]
    controls = (Choice("Swizzle", modes), Choice("Coordinates of the box", places))
    picture = with_choices("pairs", controls, states, (len(modes) - 1, 0))
    return Figure(name, title, picture, _table(boxes), notes, "Every chunk of every box")


def _words(box: PlacedBox) -> str:
    mode = f"swizzle {box.swizzle}" if box.swizzle != "none" else "no swizzle"
    return f"box at {box.coordinates}, {mode}"


def _state(box: PlacedBox) -> Markup:
    x, y = box.coordinates
    heads = joined(Markup("<th>{}").format(x + box.per_chunk * i) for i in range(box.chunks))
    lines = []
    for row in range(box.box[1]):
        cells = joined(_cell(box, row * box.chunks + chunk) for chunk in range(box.chunks))
        lines.append(Markup("<tr><th>{}{}\n").format(y + row, cells))
    held = {offset: number for number, offset in enumerate(box.offsets)}
    shared = []
    for line in range(-(-(max(held) + CHUNK_BYTES) // LINE_BYTES)):
        cells = joined(
            _cell(box, held[offset]) if offset in held else Markup('<td class="wt-gap">')
            for offset in range(line * LINE_BYTES, (line + 1) * LINE_BYTES, CHUNK_BYTES)
        )
        shared.append(Markup("<tr><th>{}{}\n").format(line * LINE_BYTES, cells))
    per_group = BANKS // GROUPS
    banks = joined(
        Markup("<th>{}–{}").format(per_group * group, per_group * group + per_group - 1) for group in range(GROUPS)
    )
    tensor = f"{box.dims[0]} x {box.dims[1]} of {box.dtype}"
    return (
        _plan(box)
        + _map(f"Box in the tensor of {tensor}, at {x}, {y}", "y\\x", heads, lines)
        + _map(f"Shared memory, {_words(box).rpartition(', ')[2]}", "byte", banks, shared)
    )


def _plan(box: PlacedBox) -> Markup:
    """The tensor and the box as two rectangles, to scale in each direction."""
    first = tuple(min(0, place) for place in box.coordinates)
    ends = tuple(
        max(size, place + extent) for size, place, extent in zip(box.dims, box.coordinates, box.box, strict=True)
    )

    def rectangle(kind: str, starts: tuple[int, ...], extents: tuple[int, ...]) -> Markup:
        parts = (
            f"{name}:{percentage(part / (end - low))}"
            for names, start, extent, low, end in zip(
                (("left", "width"), ("top", "height")), starts, extents, first, ends, strict=True
            )
            for name, part in zip(names, (start - low, extent), strict=True)
        )
        return Markup('<i class="wt-{}" style="{}"></i>').format(kind, ";".join(parts))

    return Markup('<div class="wt-plan" role="img" aria-label="Tensor of {} x {}, {}">{}{}</div>\n').format(
        *box.dims, _words(box), rectangle("tensor", (0, 0), box.dims),
        rectangle("box", box.coordinates, box.box),
    )  # fmt: skip


def _map(title: str, corner: str, heads: Markup, lines: Sequence[Markup]) -> Markup:
    return Markup(
        '<div class="wt-map"><p>{}</p><div class="wt-scroll" tabindex="0" role="group" aria-label="{}">'
        '<table class="wt-cells"><thead><tr><th>{}{}</thead>\n<tbody>\n{}</tbody></table></div></div>\n'
    ).format(title, title, corner, heads, joined(lines))


def _cell(box: PlacedBox, number: int) -> Markup:
    """A chunk, called by its row and its place in the row; how many of its bytes the tensor has, where not all."""
    row, chunk = divmod(number, box.chunks)
    inside = box.inside[number]
    outside = "" if inside == CHUNK_BYTES else " wt-part" if inside else " wt-out"
    return Markup('<td class="wt-q{}{}" data-k="{}">{}.{}').format(chunk % CHUNK_COLORS, outside, number, row, chunk)


def _table(boxes: Sequence[PlacedBox]) -> DataTable:
    rows = []
    for box in boxes:
        for row in range(box.box[1]):
            numbers = range(row * box.chunks, (row + 1) * box.chunks)
            rows.append(
                (
                    box.swizzle, ", ".join(map(str, box.coordinates)), str(row),
                    " ".join(str(box.inside[number]) for number in numbers),
                    " ".join(str(box.offsets[number]) for number in numbers),
                )
            )  # fmt: skip
    header = ("swizzle", "coordinates", "row", "bytes of each chunk inside the tensor", "offsets in shared memory")
    return DataTable(header, tuple(rows), left=len(header))
