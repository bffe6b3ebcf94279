"""Fragment pictures show the layouts that the emulator and the wrappers use."""

import re

import pytest

from page_tree import tree
from warptile.figures.fragment_map import fragment_map
from warptile.isa.catalogue import by_name
from warptile.isa.matrix_move import moves
from warptile.isa.operand_drawings import drawings_of

SHOWN = [
    ("mma.m16n8k16.f32.f16", "a", by_name()["mma.m16n8k16.f32.f16"].fragment("a"), False),
    ("mma.m16n8k16.f32.f16", "b", by_name()["mma.m16n8k16.f32.f16"].fragment("b"), False),
    ("mma.m16n8k16.f32.f16", "c", by_name()["mma.m16n8k16.f32.f16"].fragment("c"), False),
    ("mma.m16n8k32.s32.s8", "a", by_name()["mma.m16n8k32.s32.s8"].fragment("a"), False),
    ("mma.m8n8k4.f64.f64", "c", by_name()["mma.m8n8k4.f64.f64"].fragment("c"), False),
    ("wmma.m16n16k16.f32.f16", "c", by_name()["wmma.m16n16k16.f32.f16"].fragment("c"), False),
    ("ldmatrix.x4.trans", "r", moves()["ldmatrix.x4.trans"][0].fragment(4, transposed=True), False),
]


def span(text):
    first, _, last = text.partition("–")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize(("name", "operand", "layout", "_"), SHOWN, ids=[f"{n}-{o}" for n, o, _, _ in SHOWN])
def test_every_element_is_where_the_layout_has_it(name, operand, layout, _):
    found = tree(str(fragment_map("f", drawings_of(name)[operand]).html()))
    head, *lines = found.one("table", "wt-matrix").rows()
    shown = {}
    for down, *cells in lines:
        for across, cell in zip(head[1:], cells, strict=True):
            lane, register = re.fullmatch(r"T(\d+)([a-z])(\d+)", cell.replace(" ", "")).group(1, 3)
            for row in span(down):
                for column in span(across):
                    assert (row, column) not in shown
                    shown[row, column] = int(lane), int(register)
    wanted = {
        layout.place(lane, register, element): (lane, register)
        for lane in range(32)
        for register in layout.distinct
        for element in range(layout.elements)
    }
    assert shown == wanted


@pytest.mark.parametrize(("name", "operand", "layout", "_"), SHOWN, ids=[f"{n}-{o}" for n, o, _, _ in SHOWN])
def test_the_table_says_the_same_lane_by_lane(name, operand, layout, _):
    found = tree(str(fragment_map("f", drawings_of(name)[operand]).html()))
    (head, *lines) = found.one("table", "wt-table").rows()
    assert [line[0] for line in lines] == [f"T{lane}" for lane in range(32)]
    assert len(head) == 1 + len(layout.distinct)
    for lane, line in enumerate(lines):
        for register, text in zip(layout.distinct, line[1:], strict=True):
            down, across = text.split(", ")
            elements = {(row, column) for row in span(down) for column in span(across)}
            assert elements == {layout.place(lane, register, element) for element in range(layout.elements)}


def test_metadata_of_a_sparse_operand_is_drawn_by_halves_of_words():
    drawings = drawings_of("mma.sp.m16n8k32.f32.f16")
    assert list(drawings) == ["a", "metadata", "b", "c"]
    found = tree(str(fragment_map("f", drawings["metadata"]).html()))
    assert found.one("table", "wt-table").rows()[0] == ["lane", "lo", "hi"]


def test_wgmma_has_a_in_registers_and_its_accumulators():
    assert list(drawings_of("wgmma.m64n128k16.f32.f16")) == ["a", "d"]
    assert drawings_of("nothing") == {}
