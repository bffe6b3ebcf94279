"""mma.sp as data: where metadata lies, what its nibbles mean, and a product through both."""

import numpy as np
import pytest

from warptile.isa import mma_sp
from warptile.isa.fragments import coordinates, scatter_index
from warptile.isa.mma_sp import SparseShape

SELECTED = [
    pytest.param(
        shape, selector, id=f"{shape.name}-{shape.types[0]}-{shape.kind}-{shape.accumulators[0][0]}-{selector}"
    )
    for shape in mma_sp.SHAPES
    for selector in range(shape.selectors)
]


@pytest.mark.parametrize(("shape", "selector"), SELECTED)
def test_metadata_fills_whole_words_of_the_selected_lanes(shape, selector):
    lanes, shifts = mma_sp.metadata_index(shape, selector)
    assert lanes.shape == shifts.shape == (16, shape.nibbles)
    words = set(zip(lanes.ravel().tolist(), shifts.ravel().tolist(), strict=True))
    contributing = {lane for lane, _ in words}
    assert words == {(lane, 4 * nibble) for lane in contributing for nibble in range(8)}
    assert len(words) == lanes.size
    # The lanes of one selector stand side by side in each group of four, and selectors share none.
    first = selector * shape.segments
    assert contributing == {4 * g + i for g in range(8) for i in range(first, first + shape.segments)}


def test_places_that_were_seen_on_hardware():
    def place(name, element, row, nibble, selector):
        return mma_sp.find(name, element).metadata_place(row, nibble, selector)

    # One segment a row: low half row g, high half row g + 8, in lane 4 g + selector.
    assert place("m16n8k16", "f16", 3, 1, 2) == (4 * 3 + 2, 4)
    assert place("m16n8k8", "tf32", 11, 3, 1) == (4 * 3 + 1, 16 + 12)
    # Two segments of 16 and 32 bits: lanes 4 g + 2 selector + segment.
    assert place("m16n8k32", "bf16", 5, 6, 1) == (4 * 5 + 2 + 1, 8)
    assert place("m16n8k16", "tf32", 13, 2, 0) == (4 * 5, 16 + 8)
    # Two segments of 8 and 4 bits: lanes 4 g + 2 selector + h hold row g + 8 h, halves are segments.
    assert place("m16n8k32", "s8", 9, 5, 1) == (4 * 1 + 2 + 1, 16 + 4)
    assert place("m16n8k64", "s4", 2, 3, 0) == (4 * 2, 12)
    # Four segments: lane 4 g + q holds row g + 8 (q & 1), segments 2 (q >> 1) and 2 (q >> 1) + 1.
    assert place("m16n8k64", "u8", 10, 9, 0) == (4 * 2 + 1 + 2, 4)
    assert place("m16n8k64", "e4m3", 7, 15, 0) == (4 * 7 + 2, 16 + 12)
    assert place("m16n8k128", "u4", 8, 4, 0) == (1, 16)


def test_no_selector_beyond_those_of_the_shape():
    assert [mma_sp.find(n, t).selectors for n, t in (("m16n8k16", "f16"), ("m16n8k32", "f16"), ("m16n8k64", "s8"))] == [
        4, 2, 1,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="selector 2, of 2"):
        mma_sp.find("m16n8k32", "f16").metadata_place(0, 0, 2)


def test_legal_nibbles_name_distinct_places_in_increasing_order():
    assert sorted(mma_sp.PAIRS) == [0x4, 0x8, 0x9, 0xC, 0xD, 0xE]
    for nibble, (first, second) in mma_sp.PAIRS.items():
        assert first < second
        assert nibble == first | second << 2
    # 32-bit elements are named by the 16-bit halves that they consist of.
    assert {nibble: (nibble & 3, nibble >> 2) for nibble in mma_sp.SINGLES} == {0x4: (0, 1), 0xE: (2, 3)}
    nibbles = mma_sp.find("m16n8k64", "s4").positions
    assert nibbles[0x9] == (2, 3, 4, 5)
    table = mma_sp.position_table(mma_sp.find("m16n8k32", "s8"))
    assert [nibble for nibble in range(16) if table[nibble].min() >= 0] == sorted(mma_sp.PAIRS)
    assert (table[[0x0, 0x5, 0xF, 0x1]] == -1).all()


@pytest.mark.parametrize(("shape", "selector"), SELECTED)
def test_a_compressed_matrix_multiplies_as_its_dense_one(shape, selector):
    """Written element by element from the definition, then read back as the instruction would."""
    rng = np.random.default_rng(shape.k + selector)
    legal = list(shape.positions.items())
    dense = np.zeros((16, shape.k), dtype=np.int64)
    stored = np.empty((16, shape.k // 2), dtype=np.int64)
    words = rng.integers(0, 2**32, (2, 32), dtype=np.uint32)  # lanes that are not selected hold anything
    lanes, shifts = mma_sp.metadata_index(shape, selector)
    words[0, np.unique(lanes)] = 0
    for row in range(16):
        for group in range(shape.nibbles):
            nibble, places = legal[rng.integers(len(legal))]
            values = rng.integers(-9, 10, len(places))
            dense[row, [group * shape.group + place for place in places]] = values
            stored[row, group * len(places) : (group + 1) * len(places)] = values
            words[0, lanes[row, group]] |= np.uint32(nibble << int(shifts[row, group]))
    columns = mma_sp.stored_columns(shape, words, selector)
    assert columns.shape == (2, 16, shape.k // 2)
    b = rng.integers(-9, 10, (shape.k, 8))
    product = np.einsum("ms,msn->mn", stored, b[columns[0]])
    assert (product == dense @ b).all()


def test_illegal_nibbles_are_seen():
    shape = mma_sp.find("m16n8k16", "f16")
    words = np.full(32, 0x4444_4444, dtype=np.uint32)
    words[4] = 0x4444_4454  # row 1, second group: twice the same element
    columns = mma_sp.stored_columns(shape, words)
    assert (columns[1, 2:4] == -1).all()
    columns[1, 2:4] = 0
    assert (columns >= 0).all()


def test_fragments_are_those_of_the_dense_instructions():
    for shape in mma_sp.SHAPES:
        a, b, c = (shape.fragment(m, t) for m, t in (("a", shape.types[0]), ("b", shape.types[0]), ("c", "f32")))
        assert (a.rows, a.columns, b.rows, b.columns, c.rows, c.columns) == (16, shape.k // 2, shape.k, 8, 16, 8)
        # Half of 16 rows is as much as the 8 columns of B.
        assert a.bytes == b.bytes
        assert len(set(scatter_index(a).tolist())) == 16 * shape.k // 2
    places = coordinates(mma_sp.find("m16n8k32", "f16").fragment("b", "f16"))
    assert places[5, :, :, 0].tolist() == [[2, 3], [10, 11], [18, 19], [26, 27]]
    assert (places[5, :, :, 1] == 1).all()


def test_shapes_are_found_and_spelled():
    half = mma_sp.find("m16n8k32", "f16")
    assert half.opcode(("f32", "f16", "f16", "f32")) == (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    )
    assert half.opcode(("f16",) * 4, variant="sp").startswith("mma.sp.sync.aligned.m16n8k32")
    assert half.flops == 16 * 8 * 32
    integers = mma_sp.find("m16n8k64", "s8", "u8")
    assert integers.opcode(("s32", "s8", "u8", "s32"), saturate=True).endswith("row.col.satfinite.s32.s8.u8.s32")
    assert mma_sp.find("m16n8k64", "e4m3").capability == 89
    assert mma_sp.find("m16n8k64", "e4m3", result="f16").capability == 120
    assert mma_sp.find("m16n8k128", "s8") is None
    with pytest.raises(ValueError, match=r"no mma\.sp, "):
        mma_sp.find("m16n8k64", "e4m3", result="f16").opcode(("f16", "e4m3", "e4m3", "f16"), variant="sp")
    with pytest.raises(ValueError, match="does not multiply f16 and bf16"):
        half.opcode(("f32", "f16", "bf16", "f32"))


def test_records_that_contradict_themselves_are_refused():
    sums = (("f32", "f32"),)
    with pytest.raises(ValueError, match="is not m16n8k32"):
        SparseShape("m16n8k16", 16, 8, 32, ("f16",), sums, 80)
    with pytest.raises(ValueError, match="a row of 2 nibbles"):
        SparseShape("m16n8k8", 16, 8, 8, ("f16",), sums, 80)
    with pytest.raises(ValueError, match="needs types"):
        SparseShape("m16n8k16", 16, 8, 16, ("f16",), (), 80)
