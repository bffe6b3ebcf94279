"""Swizzle mode and row pitch to choose: chunks of eight rows in the banks, and the wavefronts of `ldmatrix`.

Below each map, the XOR of the eight addresses of a phase, bit by bit. All of it is `warptile.isa.swizzle`'s.
"""

from __future__ import annotations

from markupsafe import Markup

from warptile.figures.bank_map import (
    BANK_BYTES,
    BANKS,
    CHUNK_COLORS,
    GROUPS,
    MATRIX_ROWS,
    SharedTile,
    phase_words,
    tile_map,
    wavefront_words,
)
from warptile.figures.figure import Cell, DataTable, Figure, joined, texts
from warptile.figures.states import Choice, with_choices
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES, ROW_BYTES, swizzled

MODES = (0, *ROW_BYTES)
"""Swizzle modes: 0 is none."""

PADDING_BYTES = CHUNK_BYTES
"""Added to rows of `LINE_BYTES` for the padded layout."""

PITCHES = (*ROW_BYTES, LINE_BYTES + PADDING_BYTES)
"""From one row to the next, in bytes."""

TOP_BIT = ((MATRIX_ROWS - 1) * max(PITCHES) + LINE_BYTES - 1).bit_length() - 1
"""The highest bit of an address in these layouts."""

LINE_BIT, CHUNK_BIT = LINE_BYTES.bit_length() - 1, CHUNK_BYTES.bit_length() - 1
"""Where the number of the 128-byte line and that of the chunk in it start."""


def tile(pitch_bytes: int, swizzle_bytes: int) -> SharedTile:
    """Eight rows; those of the padded pitch have 128 bytes of data."""
    return SharedTile(
        f"{pitch_words(pitch_bytes)}, {mode_words(swizzle_bytes)}", MATRIX_ROWS, min(pitch_bytes, LINE_BYTES),
        pitch_bytes, swizzle_bytes,
    )  # fmt: skip


def pitch_words(pitch_bytes: int) -> str:
    """``rows 128 bytes apart``."""
    padded = f" ({LINE_BYTES} and {PADDING_BYTES} of padding)" if pitch_bytes > LINE_BYTES else ""
    return f"rows {pitch_bytes} bytes apart{padded}"


def mode_words(swizzle_bytes: int) -> str:
    """``128-byte swizzle``."""
    return f"{swizzle_bytes}-byte swizzle" if swizzle_bytes else "no swizzle"


def swizzle_explorer(
    name: str, title: str, first: tuple[int, int] = (LINE_BYTES, 0), notes: tuple[Cell, ...] = ()
) -> Figure:
    """All layouts of eight rows; ``first`` is the pitch and the swizzle mode that are shown at the beginning."""
    choices = (
        Choice("Swizzle", ("none", *(f"{mode} bytes" for mode in ROW_BYTES)), slider=True),
        Choice("Rows", tuple(pitch_words(pitch).removeprefix("rows ") for pitch in PITCHES)),
    )
    states = [((i, j), _state(tile(pitch, mode))) for i, mode in enumerate(MODES) for j, pitch in enumerate(PITCHES)]
    step = Markup(
        '<span class="wt-steps"><button type="button" data-step="-1" aria-label="previous phase">◀</button>'
        '<output aria-live="polite">{}</output>'
        '<button type="button" data-step="1" aria-label="next phase">▶</button></span>'
    ).format(phase_words(0, 0))
    picture = with_choices("swizzle", choices, states, (MODES.index(first[1]), PITCHES.index(first[0])), step)
    said = (
        f"One phase of ldmatrix or stmatrix accesses the same chunk of {MATRIX_ROWS} rows: {MATRIX_ROWS} chunks of "
        f"{CHUNK_BYTES} bytes. Each wavefront takes one of those in the same four banks.",
        "The swizzle XORs addresses: bits of the 128-byte line's number into those of the chunk. "
        "TMA lays rows as far apart as its mode permutes; with another pitch a kernel computes the XOR itself.",
        *notes,
    )
    return Figure(name, title, picture, _table(), said, "Wavefronts of every phase in every layout")


def _state(one: SharedTile) -> Markup:
    return Markup('{}<div class="wt-scroll" tabindex="0" role="group" aria-label="{}">{}</div>').format(
        tile_map(one), f"Address bits, {one.title}", _bits(one)
    )


def sources(swizzle_bytes: int) -> dict[int, int]:
    """Which address bit is XORed into which, found by permuting addresses of one bit."""
    found = {}
    for bit in range(LINE_BIT, TOP_BIT + 1):
        moved = (swizzled(1 << bit, swizzle_bytes) ^ 1 << bit) if swizzle_bytes else 0
        if moved:
            found[bit] = moved.bit_length() - 1
    return found


def _bits(one: SharedTile) -> Markup:
    """The addresses of the first phase, before and after the XOR."""
    into = sources(one.swizzle_bytes)
    before = range(TOP_BIT, CHUNK_BIT - 1, -1)
    after = range(LINE_BIT - 1, CHUNK_BIT - 1, -1)
    color = {**into, **{target: target for target in into.values()}}

    def cells(value: int, bits: range) -> Markup:
        return joined(
            Markup("<td{}>{}").format(
                Markup(' class="wt-q{}"').format((color[bit] - CHUNK_BIT) % CHUNK_COLORS) if bit in color else "",
                value >> bit & 1,
            )
            for bit in bits
        )

    lines = []
    for row in range(MATRIX_ROWS):
        linear, place = row * one.pitch_bytes, one.offset(row, 0)
        lines.append(
            Markup("<tr><th>{}{}<td>→{}<td>{}\n").format(
                row, cells(linear, before), cells(place, after), bank_words(place)
            )
        )
    heads = joined(Markup("<th>{}").format(bit) for bit in before)
    results = joined(Markup("<th>{}").format(bit) for bit in after)
    said = ", ".join(f"bit {source} into bit {target}" for source, target in into.items())
    return Markup(
        '<table class="wt-bits" data-top="{}" data-pitch="{}">'
        "<caption>Address of each row's chunk, bit by bit{}</caption>"
        "<thead><tr><th>row{}<th>→{}<th>banks</thead>\n<tbody>\n{}</tbody></table>"
    ).format(
        TOP_BIT, one.pitch_bytes, f"; XORed: {said}" if said else "; nothing is XORed", heads, results, joined(lines)
    )


def bank_words(offset: int) -> str:
    """The four banks of a chunk."""
    first = offset // BANK_BYTES % BANKS
    return f"{first}–{first + BANKS // GROUPS - 1}"


def _table() -> DataTable:
    rows = []
    for pitch in PITCHES:
        for mode in MODES:
            one = tile(pitch, mode)
            for phase in one.phases:
                wavefronts = wavefront_words(one.wavefronts(*phase))
                groups = ", ".join(texts(one.bank_groups(*phase)))
                rows.append((str(pitch), str(mode) if mode else "none", str(phase[1]), wavefronts, groups))
    header = ("bytes from row to row", "swizzle, bytes", "chunk", "wavefronts", "groups of four banks of rows 0 to 7")
    return DataTable(header, tuple(rows), left=len(header))
