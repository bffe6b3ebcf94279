"""Pictures that lessons name: drawn from the data that the emulator runs on."""

from __future__ import annotations

from collections.abc import Callable

from warptile.errors import ArgumentError
from warptile.figures.bank_map import SharedTile, bank_map
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
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


PICTURES: dict[str, Callable[..., Figure]] = {"fragment": _fragment, "banks": _banks}
"""Pictures by name, each a function of a name that is unique on the page and of its arguments."""


def picture(place: str, name: str, arguments: tuple[str, ...]) -> Figure:
    """A picture of a lesson.

    Raises:
        ArgumentError: there is no such picture, or it takes other arguments.
    """
    if name not in PICTURES:
        raise ArgumentError(f"figure: got {name!r}; there are {', '.join(PICTURES)}, such as banks plain swizzled")
    return PICTURES[name](place, *arguments)
