"""The descriptor editor shows what the emulator reads."""

import numpy as np
import pytest

from page_tree import tree
from warptile.figures.descriptor_editor import (
    FIELDS,
    OperandInMemory,
    core_addresses,
    core_pattern,
    descriptor_editor,
    field_bits,
)
from warptile.isa.wgmma import SWIZZLES, Descriptor, pattern

A = OperandInMemory("A", 64, 16, 16, True)
WIDE = OperandInMemory("B", 64, 64, 8, False)
FIRST = Descriptor(1024, 16, 1024, swizzle=128)


def test_fields_are_where_decoding_finds_them():
    values = {"start": 0x3FFF0, "leading": 0x12340, "stride": 0x20000, "base_offset": 5, "swizzle": 64}
    word = 0
    for field, _, _ in FIELDS:
        place = field_bits(field)
        code = SWIZZLES.index(values[field]) if field == "swizzle" else values[field] // place.unit
        word |= code << place.low
    assert Descriptor.decode(word) == Descriptor(**values)
    assert word == Descriptor(**values).encode()
    assert [(field_bits(f).low, field_bits(f).bits) for f, _, _ in FIELDS] == [
        (0, 14),
        (16, 14),
        (32, 14),
        (49, 3),
        (62, 2),
    ]
    assert field_bits("start").largest == (1 << 18) - 16


@pytest.mark.parametrize("operand", [A, WIDE], ids=["A", "wide"])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_terms_and_addresses_are_those_of_the_pattern(operand, swizzle):
    for _, transposed in operand.layouts:
        descriptor = Descriptor(4096 + 32, 4112, 2064, 3, swizzle)
        found = pattern(operand.rows, operand.k, operand.bits, swizzle, transposed=transposed)
        one = [np.array([value]) for value in (descriptor.start, descriptor.leading, descriptor.stride)]
        every = found.addresses(*one, np.array([3]))[0]
        cores = core_addresses(operand, descriptor, transposed)
        assert cores.shape == (*operand.grid, 8)
        assert sorted(cores.ravel()) == sorted(every.ravel())
        terms = core_pattern(operand, swizzle, transposed)
        for i, j in np.ndindex(operand.grid):
            fixed, leadings, strides = terms.terms[i][j]
            for chunk in range(8):
                row, column = (8 * j + chunk, i) if transposed else (8 * i + chunk, j)
                assert cores[i, j, chunk] == every[row, column]
                assert fixed + chunk * terms.step == found.fixed[row, column]
                assert (leadings, strides) == (found.leadings[row, column], found.strides[row, column])


def test_the_picture_begins_with_the_given_descriptor():
    found = tree(str(descriptor_editor("d", "Descriptor", A, FIRST).html()))
    assert int(found.one("code", "wt-word").text, 16) == FIRST.encode()
    bits = {cell.attributes["data-bits"]: cell.text for cell in found.one("table", "wt-fields").all("td")}
    assert bits["start"] == f"{1024 // 16:014b}"
    assert bits["swizzle"] == f"{SWIZZLES.index(128):02b}"
    cores = found.one("table", "wt-cores").one("tbody").rows()
    wanted = core_addresses(A, FIRST, transposed=False)
    assert [[int(cell, 16) for cell in row[1:]] for row in cores] == wanted[:, :, 0].tolist()
    chunks = found.one("table", "wt-chunks").one("tbody").rows()
    assert [int(row[1], 16) for row in chunks] == wanted[0, 0].tolist()
    assert found.one(class_="wt-wavefronts").text == "1 wavefront"
    assert len(found.one("table", "wt-table").rows()) == 1 + 2 * 4 * 16


def test_elements_of_8_bits_are_k_major_alone():
    found = tree(str(descriptor_editor("d", "Descriptor", WIDE, FIRST).html()))
    assert [option.text for option in found.one("select", **{"data-layout": ""}).all("option")] == ["K-major"]
