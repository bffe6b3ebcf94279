"""Bank maps count wavefronts as the emulator does, and so as the hardware does."""

import numpy as np
import pytest

from page_tree import tree
from warptile.emulator.counters import BANKS, _count_wavefronts
from warptile.figures.bank_map import BANKS as DRAWN_BANKS
from warptile.figures.bank_map import MATRIX_ROWS, SharedTile, bank_map
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES, ROW_BYTES, swizzled

TILES = [
    *(SharedTile("plain", 16, row, row) for row in (16, 32, 48, 64, 96, 128, 256)),
    *(SharedTile("padded", 16, row, row + pad) for row in (32, 64, 128, 256) for pad in (16, 32, 64)),
    *(SharedTile("swizzled", 16, row, row, row) for row in ROW_BYTES),
]


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.row_bytes}-{tile.pitch_bytes}-{tile.swizzle_bytes}")
def test_wavefronts_are_those_that_the_emulator_counts(tile):
    lanes = np.arange(MATRIX_ROWS)
    for first_row, chunk in tile.phases:
        rows = range(first_row, first_row + MATRIX_ROWS)
        addresses = np.array([tile.offset(row, chunk) for row in rows], dtype=np.int64)
        ideal, counted = _count_wavefronts(addresses, lanes, CHUNK_BYTES, MATRIX_ROWS, False)
        assert (ideal, counted) == (1, tile.wavefronts(first_row, chunk))
    assert DRAWN_BANKS == BANKS


def test_the_permutation_is_that_of_the_instructions():
    tile = SharedTile("swizzled", 8, 128, 128, 128)
    assert [tile.offset(3, chunk) for chunk in range(8)] == [swizzled(3 * 128 + 16 * chunk, 128) for chunk in range(8)]
    assert {tile.wavefronts(*phase) for phase in tile.phases} == {1}
    assert {SharedTile("plain", 8, 128, 128).wavefronts(*phase) for phase in tile.phases} == {8}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [((8, 24, 24, 0), "multiples of 16"), ((8, 64, 32, 0), "multiples of 16"), ((7, 64, 64, 0), "7 rows"),
     ((8, 64, 64, 96), "96-byte swizzle"), ((8, 48, 48, 48), "48-byte swizzle")],
)  # fmt: skip
def test_tiles_that_no_phase_can_read_are_refused(numbers, said):
    with pytest.raises(ValueError, match=said):
        SharedTile("tile", *numbers)


def test_every_chunk_is_drawn_once_in_its_banks_and_the_first_phase_is_marked():
    tile = SharedTile("padded <16>", 8, 64, 80)
    found = tree(str(bank_map("b", "Banks", [tile]).html()))
    table = found.one("table", "wt-cells")
    body = table.one("tbody").rows()
    drawn = {}
    for line, cells in enumerate(body):
        assert cells[0] == str(line * LINE_BYTES)
        for group, text in enumerate(cells[1:]):
            if text:
                drawn[tuple(map(int, text.split(".")))] = line * LINE_BYTES + group * CHUNK_BYTES
    assert drawn == {(row, chunk): tile.offset(row, chunk) for row in range(8) for chunk in range(4)}
    marked = [cell.words for cell in table.all("td", "wt-on")]
    assert sorted(marked) == [f"{row}.0" for row in range(8)]
    assert found.one(class_="wt-wavefronts").text == "1 wavefront"
    assert table.one("thead").rows()[0][1:] == ["0–3", "4–7", "8–11", "12–15", "16–19", "20–23", "24–27", "28–31"]


def test_the_table_below_has_every_phase_of_every_tile():
    tiles = [SharedTile("plain", 8, 128, 128), SharedTile("swizzled", 8, 128, 128, 128)]
    rows = tree(str(bank_map("b", "Banks", tiles).html())).one("table", "wt-table").rows()
    assert rows[0][1:3] == ["wavefronts, plain", "wavefronts, swizzled"]
    assert [row[:3] for row in rows[1:]] == [[f"rows 0 to 7, chunk {chunk}", "8", "1"] for chunk in range(8)]
    assert rows[3][3:] == ["2, 2, 2, 2, 2, 2, 2, 2", "2, 3, 0, 1, 6, 7, 4, 5"]
    with pytest.raises(ValueError, match="of as many chunks"):
        bank_map("b", "Banks", [tiles[0], SharedTile("narrow", 8, 64, 64)])
