"""A, B and D beside each other show the layouts that move the emulator's data."""

import re

import pytest

from page_tree import tree
from warptile.figures.mma_triple import OperandGrid, mma_triple
from warptile.isa.catalogue import by_name

NAMES = (
    "mma.m16n8k16.f32.f16", "mma.m8n8k4.f64.f64", "mma.m16n8k32.s32.s8", "mma.m8n8k4.f32.f16.row.row",
    "mma.m16n8k8.f16.f16", "mma.sp.m16n8k32.f32.f16", "wmma.m8n32k16.f32.f16", "wmma.m32n8k16.f16.f16",
)  # fmt: skip


def grids(name):
    instruction = by_name()[name]
    axes = {"a": ("m", "k"), "b": ("k", "n"), "d": ("m", "n")}
    return tuple(OperandGrid(letter, letter.upper(), axes[letter], instruction.fragment(letter)) for letter in "abd")


def figure(name):
    instruction = by_name()[name]
    return mma_triple("f", name, grids(name), instruction.opcode, getattr(instruction.shape, "matrices", 1))


def span(text):
    first, _, last = text.partition("–")
    return range(int(first), int(last or first) + 1)


def held(layout):
    return {
        layout.place(lane, register, element): (lane, register)
        for lane in range(32)
        for register in layout.distinct
        for element in range(layout.elements)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_element_of_every_operand_is_where_its_layout_has_it(name):
    found = tree(str(figure(name).html()))
    for letter in "abd":
        section = found.one("section", f"wt-operand-{letter}")
        head, *lines = section.one("table").rows()
        shown = {}
        for down, *cells in lines:
            for across, cell in zip(head[1:], cells, strict=True):
                lane, own, register = re.fullmatch(r"T(\d+) ?([abd])(\d+)", cell).groups()
                assert own == letter
                for place in ((row, column) for row in span(down) for column in span(across)):
                    assert place not in shown
                    shown[place] = int(lane), int(register)
        assert shown == held(by_name()[name].fragment(letter))


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_the_registers_of_each_lane(name):
    found = tree(str(figure(name).html()))
    header, *lines = found.one("table", "wt-table").rows()
    assert len(lines) == 32
    for lane, line in enumerate(lines):
        assert line[0] == f"T{lane}"
        for register, cell in zip(header[1:], line[1:], strict=True):
            layout = by_name()[name].fragment(register[0])
            places = {layout.place(lane, int(register[1:]), element) for element in range(layout.elements)}
            rows, columns = map(span, cell.split(", "))
            assert {(row, column) for row in rows for column in columns} == places


def test_spot_checks_by_the_formulas_of_the_ptx_isa():
    """mma.m16n8k16 with f16: row of A is lane / 4 (plus 8 for a1, a3), its k is 2 (lane % 4) (plus 8 for a2, a3)."""
    rows = tree(str(figure("mma.m16n8k16.f32.f16").html())).one("table", "wt-table").rows()
    assert rows[0] == ["lane", "a0", "a1", "a2", "a3", "b0", "b1", "d0", "d1", "d2", "d3"]
    for lane in (0, 5, 18, 31):
        group, thread = divmod(lane, 4)
        k, far = (f"{start + 2 * thread}–{start + 2 * thread + 1}" for start in (0, 8))
        n = 2 * thread
        assert rows[1 + lane] == [
            f"T{lane}", f"{group}, {k}", f"{group + 8}, {k}", f"{group}, {far}", f"{group + 8}, {far}",
            f"{k}, {group}", f"{far}, {group}",
            f"{group}, {n}", f"{group}, {n + 1}", f"{group + 8}, {n}", f"{group + 8}, {n + 1}",
        ]  # fmt: skip


def test_the_statement_names_every_register_and_what_follows():
    a, b, d = grids("mma.sp.m16n8k32.f32.f16")
    found = tree(str(mma_triple("f", "t", (a, b, d), "mma.sp", rest=("metadata", "<0>")).html()))
    text = found.one("p", "wt-ptx").words
    assert text == "mma.sp {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1, b2, b3}, {c0, c1, c2, c3}, metadata, <0>;"
    assert len(found.one("p", "wt-ptx").all("span")) == 16


def test_operands_that_do_not_multiply_are_refused():
    a, b, d = grids("mma.m16n8k16.f32.f16")
    with pytest.raises(ValueError, match="not 2 products"):
        mma_triple("f", "t", (a, b, d), "mma", 2)
    with pytest.raises(ValueError, match=r"not 1 product$"):
        mma_triple("f", "t", (a, a, d), "mma")
