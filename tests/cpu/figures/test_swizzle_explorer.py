"""Every layout of the swizzle explorer is that of `warptile.isa.swizzle`."""

import pytest

from page_tree import tree
from warptile.figures.swizzle_explorer import MODES, PITCHES, sources, swizzle_explorer, tile
from warptile.isa.swizzle import swizzled


@pytest.fixture(scope="module")
def page():
    return tree(str(swizzle_explorer("s", "Swizzle").html()))


def place(pitch, mode, row, chunk):
    linear = row * pitch + 16 * chunk
    return swizzled(linear, mode) if mode else linear


def test_every_chunk_of_every_layout_is_where_the_swizzle_has_it(page):
    states = page.all("section", "wt-state")
    assert len(states) == len(MODES) * len(PITCHES) == 16
    for state in states:
        i, j = map(int, state.attributes["data-state"].split())
        mode, pitch = MODES[i], PITCHES[j]
        shown = {}
        for line in state.one("table", "wt-cells").one("tbody").rows():
            for group, cell in enumerate(line[1:]):
                if cell:
                    shown[tuple(map(int, cell.split(".")))] = int(line[0]) + 16 * group
        chunks = min(pitch, 128) // 16
        assert shown == {(r, c): place(pitch, mode, r, c) for r in range(8) for c in range(chunks)}


def test_rows_of_128_bytes_go_from_eight_wavefronts_to_one(page):
    counts = [max(tile(128, mode).wavefronts(0, chunk) for chunk in range(8)) for mode in MODES]
    assert counts == [8, 4, 2, 1]
    shown = [row[3] for row in page.one("table", "wt-table").rows()[1:] if row[0] == "128" and row[2] == "5"]
    assert shown == ["8 wavefronts", "4 wavefronts", "2 wavefronts", "1 wavefront"]


def test_padding_needs_no_swizzle():
    assert {tile(144, 0).wavefronts(0, chunk) for chunk in range(8)} == {1}


def test_the_bits_are_those_of_the_addresses(page):
    for state in page.all("section", "wt-state"):
        i, j = map(int, state.attributes["data-state"].split())
        for row, (_, *bits, banks) in enumerate(state.one("table", "wt-bits").one("tbody").rows()):
            before, after = "".join(bits).split("→")
            assert int(before, 2) * 16 == row * PITCHES[j]
            address = place(PITCHES[j], MODES[i], row, 0)
            assert int(after, 2) == address // 16 % 8
            assert banks == f"{address % 128 // 4}–{address % 128 // 4 + 3}"


def test_bits_of_the_line_are_xored_into_those_of_the_chunk():
    assert [sources(mode) for mode in MODES] == [{}, {7: 4}, {7: 4, 8: 5}, {7: 4, 8: 5, 9: 6}]


def test_one_state_of_each_phase_is_in_the_table(page):
    rows = page.one("table", "wt-table").rows()[1:]
    assert len(rows) == len(MODES) * (2 + 4 + 8 + 8)
    for pitch, mode, chunk, _, groups in rows:
        bytes_ = 0 if mode == "none" else int(mode)
        wanted = [place(int(pitch), bytes_, row, int(chunk)) % 128 // 16 for row in range(8)]
        assert list(map(int, groups.split(", "))) == wanted
