"""Which banks of shared memory hold each 16-byte chunk of a tile, and how many wavefronts ``ldmatrix`` takes there.

A line of the picture is 128 bytes of shared memory: 32 banks of 4 bytes, in eight groups of four, one chunk each. One
phase of ``ldmatrix`` reads an 8x8 matrix of 16-bit elements: the same chunk of eight consecutive rows. Two chunks in
the same banks take two wavefronts. The permutation is `warptile.isa.swizzle`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.figure import Cell, DataTable, Figure, joined, texts
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES, ROW_BYTES, swizzled

BANK_BYTES = 4
BANKS = LINE_BYTES // BANK_BYTES
MATRIX_ROWS = 8
"""Rows of one phase: those of an 8x8 matrix."""

GROUPS = LINE_BYTES // CHUNK_BYTES
"""Chunks of a line, each in four banks."""

CHUNK_COLORS = 8
"""Colors that the stylesheet has for chunks; they repeat in wider rows."""


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory.

    Attributes:
        title: how its rows lie.
        rows: how many are drawn.
        row_bytes: of data in a row, a multiple of 16.
        pitch_bytes: from one row to the next, a multiple of 16.
        swizzle_bytes: the swizzle mode, 32, 64 or 128, or 0 for none. It permutes addresses, whatever the pitch; TMA
            lays rows as far apart as it permutes.
    """

    title: str
    rows: int
    row_bytes: int
    pitch_bytes: int
    swizzle_bytes: int = 0

    def __post_init__(self) -> None:
        if self.row_bytes % CHUNK_BYTES or self.pitch_bytes % CHUNK_BYTES or not 0 < self.row_bytes <= self.pitch_bytes:
            raise ValueError(
                f"rows of {self.row_bytes} bytes, {self.pitch_bytes} apart: both are multiples of {CHUNK_BYTES}"
            )
        if self.rows <= 0 or self.rows % MATRIX_ROWS:
            raise ValueError(f"{self.rows} rows: a phase reads {MATRIX_ROWS}")
        if self.swizzle_bytes and self.swizzle_bytes not in ROW_BYTES:
            raise ValueError(
                f"a {self.swizzle_bytes}-byte swizzle: there are those of {', '.join(map(str, ROW_BYTES))} bytes"
            )

    @property
    def chunks(self) -> int:
        """Chunks of a row."""
        return self.row_bytes // CHUNK_BYTES

    def offset(self, row: int, chunk: int) -> int:
        """Where a chunk lies, in bytes from the start of the tile."""
        linear = row * self.pitch_bytes + chunk * CHUNK_BYTES
        return swizzled(linear, self.swizzle_bytes) if self.swizzle_bytes else linear

    def bank_groups(self, first_row: int, chunk: int) -> tuple[int, ...]:
        """The group of four banks of each of the eight chunks of a phase."""
        return tuple(
            self.offset(row, chunk) % LINE_BYTES // CHUNK_BYTES for row in range(first_row, first_row + MATRIX_ROWS)
        )

    def wavefronts(self, first_row: int, chunk: int) -> int:
        """Wavefronts of a phase: the most chunks in one group of banks."""
        return max(Counter(self.bank_groups(first_row, chunk)).values())

    @property
    def phases(self) -> tuple[tuple[int, int], ...]:
        """The first row and the chunk of every phase."""
        return tuple((row, chunk) for row in range(0, self.rows, MATRIX_ROWS) for chunk in range(self.chunks))


def bank_map(name: str, title: str, tiles: Sequence[SharedTile], notes: tuple[Cell, ...] = ()) -> Figure:
    """Tiles beside each other, with the same phase marked in all of them: how they lie, and what a phase takes.

    Raises:
        ValueError: they have not the same rows and chunks.
    """
    first = tiles[0]
    if any((tile.rows, tile.chunks) != (first.rows, first.chunks) for tile in tiles):
        raise ValueError("tiles that are compared have the same rows, of as many chunks each")
    phases = first.phases
    maps = joined(tile_map(tile) for tile in tiles)
    picture = Markup(
        '<div class="wt-banks" data-wt="banks" data-phases="{}">\n'
        '<p class="wt-steps"><button type="button" data-step="-1" aria-label="previous phase">◀</button>'
        '<output aria-live="polite">{}</output>'
        '<button type="button" data-step="1" aria-label="next phase">▶</button></p>\n'
        '<div class="wt-maps">\n{}</div></div>'
    ).format(len(phases), phase_words(*phases[0]), maps)
    rows = [
        (phase_words(*phase), *(str(tile.wavefronts(*phase)) for tile in tiles),
         *(", ".join(texts(tile.bank_groups(*phase))) for tile in tiles))
        for phase in phases
    ]  # fmt: skip
    header = (
        "ldmatrix phase", *(f"wavefronts, {tile.title}" for tile in tiles),
        *(f"groups of four banks, {tile.title}" for tile in tiles),
    )  # fmt: skip
    return Figure(name, title, picture, DataTable(header, tuple(rows)), notes)


def phase_words(row: int, chunk: int) -> str:
    """``rows 0 to 7, chunk 2``."""
    return f"rows {row} to {row + MATRIX_ROWS - 1}, chunk {chunk}"


def tile_map(tile: SharedTile) -> Markup:
    """One tile: a table of its lines, and how many chunks of the phase each group of banks has."""
    numbers = {phase: number for number, phase in enumerate(tile.phases)}
    held = {
        tile.offset(row, chunk) // CHUNK_BYTES: (row, chunk) for row in range(tile.rows) for chunk in range(tile.chunks)
    }
    last = -(-(max(held) + 1) // GROUPS)
    per_group = BANKS // GROUPS
    heads = joined(
        Markup("<th>{}–{}</th>").format(per_group * group, per_group * group + per_group - 1) for group in range(GROUPS)
    )
    lines = []
    for line in range(last):
        cells = []
        for group in range(GROUPS):
            place = held.get(line * GROUPS + group)
            if place is None:
                cells.append(Markup('<td class="wt-gap">'))
                continue
            row, chunk = place
            phase = numbers[row - row % MATRIX_ROWS, chunk]
            cells.append(
                Markup('<td class="wt-q{}{}" data-p="{}">{}.{}').format(
                    chunk % CHUNK_COLORS, Markup("" if phase else " wt-on"), phase, row, chunk
                )
            )
        lines.append(Markup("<tr><th>{}</th>{}</tr>\n").format(line * LINE_BYTES, joined(cells)))
    counts = joined(
        Markup("<td>{}").format(count or "")
        for count in (Counter(tile.bank_groups(*tile.phases[0]))[group] for group in range(GROUPS))
    )
    wavefronts = ",".join(str(tile.wavefronts(*phase)) for phase in tile.phases)
    return Markup(
        '<section class="wt-map" data-wavefronts="{}"><p>{}: <span class="wt-wavefronts">{}</span></p>'
        '<div class="wt-scroll" tabindex="0" role="group" aria-label="{}"><table class="wt-cells">'
        '<thead><tr><th>byte{}</thead>\n<tbody>\n{}</tbody>\n'
        '<tfoot><tr><th>chunks{}</tfoot></table></div></section>\n'
    ).format(
        wavefronts, tile.title, wavefront_words(tile.wavefronts(*tile.phases[0])), f"Banks, {tile.title}", heads,
        joined(lines), counts,
    )  # fmt: skip


def wavefront_words(count: int) -> str:
    """``1 wavefront``, ``8 wavefronts``."""
    return f"{count} wavefront{'' if count == 1 else 's'}"
