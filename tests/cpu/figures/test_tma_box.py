"""Chunks of a box are inside the tensor by its extents, and in shared memory where the emulator's copies put them."""

from dataclasses import replace

import pytest

from page_tree import tree
from warptile.bench.instruction_pages.box_examples import COORDINATES, HEIGHT, ROWS, WIDTH, figure, placed
from warptile.isa.swizzle import swizzled
from warptile.launch.tensor_map import SWIZZLE_BYTES


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("swizzle", SWIZZLE_BYTES)
def test_places_follow_from_the_formula(swizzle, coordinates):
    box = placed(swizzle, coordinates)
    span = SWIZZLE_BYTES[swizzle]
    x, y = coordinates
    assert len(box.offsets) == ROWS * box.chunks
    for number, (inside, offset) in enumerate(zip(box.inside, box.offsets, strict=True)):
        row, chunk = divmod(number, box.chunks)
        linear = row * box.chunks * 16 + chunk * 16
        assert offset == (swizzled(linear, span) if span else linear)
        elements = range(x + 8 * chunk, x + 8 * chunk + 8)
        assert inside == 2 * sum(0 <= each < WIDTH for each in elements) * (0 <= y + row < HEIGHT)


@pytest.mark.parametrize("stores", [False, True])
def test_every_state_has_each_chunk_twice_and_hatches_what_is_outside(stores):
    found = tree(str(figure(stores=stores).html()))
    places = [each for each in COORDINATES if not stores or min(each) >= 0]
    states = found.all("section", "wt-state")
    assert len(states) == len(SWIZZLE_BYTES) * len(places)
    for state in states:
        i, j = map(int, state.attributes["data-state"].split())
        box = placed(list(SWIZZLE_BYTES)[i], places[j])
        tensor, shared = state.all("table", "wt-cells")
        for table in (tensor, shared):
            cells = [cell for cell in table.all("td") if "data-k" in cell.attributes]
            assert sorted(int(cell.attributes["data-k"]) for cell in cells) == list(range(len(box.inside)))
            for cell in cells:
                inside = box.inside[int(cell.attributes["data-k"])]
                assert ("wt-out" in cell.classes, "wt-part" in cell.classes) == (not inside, 0 < inside < 16)
        for line in shared.one("tbody").all("tr"):
            start = int(line.all("th")[0].text)
            for group, cell in enumerate(line.all("td")):
                if "data-k" in cell.attributes:
                    assert box.offsets[int(cell.attributes["data-k"])] == start + 16 * group


def test_a_chunk_on_the_edge_is_partly_inside():
    assert set(placed("128B", (56, 6)).inside) == {0, 8, 16}


def test_a_box_whose_chunks_share_an_address_is_refused():
    box = placed("none", (0, 0))
    with pytest.raises(ValueError, match="an address of its own"):
        replace(box, offsets=(0,) * len(box.offsets))
    with pytest.raises(ValueError, match="3 chunks of a box of 8 x 8"):
        replace(box, inside=(16,) * 3, offsets=(0, 16, 32))
