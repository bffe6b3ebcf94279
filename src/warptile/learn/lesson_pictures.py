"""Pictures that lessons name: drawn from the data that the emulator runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warptile.bench.html_report import rung_timelines
from warptile.bench.instruction_pages import box_examples
from warptile.bench.instruction_pages.group_page import descriptor_figure
from warptile.bench.instruction_pages.multiplication_page import layouts_of, triple_figure
from warptile.errors import ArgumentError
from warptile.figures.bank_map import SharedTile, bank_map
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
from warptile.figures.swizzle_explorer import swizzle_explorer
from warptile.isa import wgmma
from warptile.isa.catalogue import by_name
from warptile.isa.operand_drawings import drawings_of
from warptile.isa.swizzle import CHUNK_BYTES


def _fragment(place: str, instruction: str, operand: str) -> Figure:
    """``fragment mma.m16n8k16.f32.f16 c``: which lane holds what of an operand."""
    found = drawings_of(instruction)
    if operand not in found:
        raise ArgumentError(f"figure: {instruction} has operands {', '.join(found) or 'none'}, not {operand}")
    return fragment_map(f"{place}-{operand}", found[operand])


def _banks(place: str, *names: str) -> Figure:
    """``banks plain padded swizzled``: eight rows of 128 bytes, as they lie so."""
    row = 128
    tiles = {
        "plain": SharedTile("rows one after the other", 8, row, row),
        "padded": SharedTile(f"padded by {CHUNK_BYTES} bytes", 8, row, row + CHUNK_BYTES),
        "swizzled": SharedTile("128-byte swizzle", 8, row, row, row),
    }
    unknown = [name for name in names if name not in tiles]
    if unknown:
        raise ArgumentError(f"figure: banks takes {', '.join(tiles)}, such as banks plain swizzled; got {unknown[0]}")
    return bank_map(f"{place}-banks", "Eight rows in the 32 banks of shared memory", [tiles[name] for name in names])


def _triple(place: str, instruction: str) -> Figure:
    """``triple mma.m16n8k16.f32.f16``: A, B and D beside each other, by lane."""
    found = by_name()[instruction]
    layouts = layouts_of(found, max(90, found.capability))
    return triple_figure(f"{place}-triple", f"A, B and D of {instruction}", found, layouts)


def _descriptor(place: str, instruction: str) -> Figure:
    """``descriptor wgmma.m64n128k16.f32.f16``: the matrix descriptor of an operand, to edit."""
    return replace(descriptor_figure(wgmma.by_name()[instruction][0]), name=f"{place}-descriptor")


def _swizzles(place: str) -> Figure:
    """``swizzles``: every swizzle and some pitches, to choose."""
    return swizzle_explorer(f"{place}-swizzles", "Choose a swizzle and a pitch, and step through the phases")


def _box(place: str) -> Figure:
    """``box``: where TMA puts the chunks of a box."""
    return replace(box_examples.figure(stores=False), name=f"{place}-box")


def _timelines(place: str, rung: str) -> tuple[Figure, ...]:
    """``timelines wgmma-specialized``: what each warp does, beside the kernel that it is compared with."""
    found = rung_timelines.of_rung(rung, place)
    if found is None:
        raise ArgumentError(f"figure: there is no timeline of {rung}; there are {', '.join(rung_timelines.WATCH)}")
    return found.figures


PICTURES: dict[str, Callable[..., Figure | tuple[Figure, ...]]] = {
    "fragment": _fragment, "banks": _banks, "triple": _triple, "descriptor": _descriptor, "swizzles": _swizzles,
    "box": _box, "timelines": _timelines,
}  # fmt: skip
"""Pictures by name, each a function of a name that is unique on the page and of its arguments."""


def picture(place: str, name: str, arguments: tuple[str, ...]) -> tuple[Figure, ...]:
    """A picture of a lesson, or several that belong together.

    Raises:
        ArgumentError: there is no such picture, or it takes other arguments.
    """
    if name not in PICTURES:
        raise ArgumentError(f"figure: got {name!r}; there are {', '.join(PICTURES)}, such as banks plain swizzled")
    found = PICTURES[name](place, *arguments)
    return found if isinstance(found, tuple) else (found,)
