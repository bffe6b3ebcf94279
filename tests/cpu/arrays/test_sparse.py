"""2:4 matrices: what is kept, how it is stored, how it goes to torch and back, and what is refused."""

from itertools import combinations

import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit floats with NumPy)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warptile as wt
from warptile.arrays.sparse import ELEMENTS, LEGAL, LEGAL_OF_TWO, group_width, packed_rows, packed_shape
from warptile.dtypes import DTYPES
from warptile.errors import DTypeError, LayoutError, ShapeError
from warptile.isa import mma_sp as instructions

TYPES = [DTYPES[name].numpy for name in ELEMENTS]


def drawn(m, k, dtype, seed=0):
    """Normal numbers, rounded to the type; few enough values that equal ones are common in 8 bits."""
    values = np.random.default_rng([seed, m, k]).standard_normal((m, k)).astype(np.float32) * 20
    return (np.abs(values) if dtype == "uint8" else values).astype(np.dtype(dtype))


def wide(array):
    return array.astype(np.float64)


# --- pruning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_half_of_each_group_is_kept_and_it_is_the_larger_half(dtype):
    w = drawn(37, 48, dtype)
    dense = wt.sparsify(w).to_dense()
    width = 2 if dtype == "float32" else 4
    groups, kept = np.abs(wide(w)).reshape(37, -1, width), wide(dense).reshape(37, -1, width)
    assert np.all((kept != 0).sum(-1) <= width // 2)
    assert np.array_equal(kept[kept != 0], wide(w).reshape(kept.shape)[kept != 0])
    largest = np.sort(groups, axis=-1)[..., width // 2 :].sum(-1)
    assert np.array_equal(np.abs(kept).sum(-1), largest)


def test_of_equal_magnitudes_the_first_are_kept():
    w = np.array([[1, -1, 1, 1], [0, 2, -2, 2], [0, 0, 0, 0], [3, 1, 2, 3]], np.float16)
    assert wt.sparsify(w).to_dense().tolist() == [[1, -1, 0, 0], [0, 2, -2, 0], [0, 0, 0, 0], [3, 0, 0, 3]]


def test_nan_and_infinity_survive():
    w = np.array([[np.nan, 1, -np.inf, 5], [7, np.nan, np.nan, 8]], np.float32)
    kept = wt.sparsify(w.astype(np.float16)).to_dense()
    assert np.isnan(kept[0, 0])
    assert kept[0].tolist()[1:] == [0, -np.inf, 0]
    assert np.isnan(kept[1]).tolist() == [False, True, True, False]
    assert kept[1, 3] == 0


def test_the_largest_negative_integer_is_the_largest():
    assert wt.sparsify(np.array([[127, -128, 126, -127]], np.int8)).to_dense().tolist() == [[127, -128, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_already_sparse_comes_back_whole(data):
    dtype = data.draw(st.sampled_from(TYPES))
    width = 2 if dtype == "float32" else 4
    m, groups = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    places = st.sampled_from([c for n in range(width // 2 + 1) for c in combinations(range(width), n)])
    numbers = st.integers(1 if dtype == "uint8" else -7, 7)
    w = np.zeros((m, groups * width), np.dtype(dtype))
    for row in range(m):
        for group in range(groups):
            for place in data.draw(places):
                w[row, group * width + place] = data.draw(numbers)
    sparse = wt.sparsify(w, exact=True)
    assert np.array_equal(wide(sparse.to_dense()), wide(w))
    assert np.array_equal(wide(wt.sparsify(w).to_dense()), wide(w))


# --- storage -------------------------------------------------------------------------------------------------------


def test_every_pattern_has_its_nibble():
    # PTX ISA, mma.sp: the two places as two bits each, the lower place in the low bits.
    for code, (first, second) in zip(LEGAL, combinations(range(4), 2), strict=True):
        w = np.zeros((1, 8), np.float16)
        w[0, 4 + first], w[0, 4 + second] = 1, 2
        sparse = wt.sparsify(w)
        assert sparse.values.tolist() == [[0, 0, 1, 2]]
        assert sparse.metadata.tolist() == [[0x4 | code << 4]]
        assert code == first | second << 2


def test_one_of_two_is_named_by_halves():
    sparse = wt.sparsify(np.array([[5, 0, 0, 6, 7, 1]], np.float32))
    assert sparse.values.tolist() == [[5, 6, 7]]
    assert sparse.metadata.tolist() == [[0xE4, 0x44]]


@pytest.mark.parametrize("dtype", TYPES)
def test_all_metadata_is_legal_and_ordered(dtype):
    metadata = wt.sparsify(drawn(33, 60, dtype)).metadata
    legal = LEGAL_OF_TWO if dtype == "float32" else LEGAL
    assert set(np.unique(metadata & 15)) | set(np.unique(metadata >> 4)) <= set(legal)


@pytest.mark.parametrize(("dtype", "share"), [("float16", 9 / 16), ("float32", 9 / 16), ("int8", 5 / 8)])
def test_bytes_shape_and_type(dtype, share):
    w = drawn(24, 64, dtype)
    sparse = wt.sparsify(w)
    assert sparse.shape == (24, 64)
    assert sparse.dtype == w.dtype
    assert sparse.nbytes == share * w.nbytes


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_need_not_be_contiguous(dtype):
    w = np.asfortranarray(drawn(20, 36, dtype))
    strided = drawn(20, 72, dtype)[:, 8:44]
    for each in (w, strided):
        copied = wt.sparsify(np.ascontiguousarray(each))
        assert wt.sparsify(each).values.tobytes() == copied.values.tobytes()
        assert wt.sparsify(each).metadata.tobytes() == copied.metadata.tobytes()


# --- packed for the instruction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("size", [(64, 128), (35, 100), (1, 4), (0, 8), (7, 0)])
def test_packed_words_are_what_the_instruction_reads(dtype, size):
    # The words of each 16 rows and step, given to the instruction's own description, name the columns of the values.
    element = DTYPES["tfloat32" if dtype == "float32" else dtype]
    sparse = wt.sparsify(drawn(*size, DTYPES[dtype].numpy))
    (m, k), words = sparse.shape, sparse.packed()
    step = 64 * 8 // element.bits
    shape = instructions.find(f"m16n8k{step}", element.ptx)
    rows = packed_rows(element)
    assert words.shape == packed_shape(m, k, element)
    assert sparse.packed() is words
    dense = np.zeros((-(-m // rows) * rows, len(words) * step))
    values = np.zeros((dense.shape[0], dense.shape[1] // 2))
    values[:m, : k // 2] = wide(sparse.values)
    for i, steps in enumerate(words.reshape(len(words), words.shape[1] // 32, 32)):
        for block, lanes in enumerate(steps):
            for selector in range(rows // 16):
                columns = instructions.stored_columns(shape, lanes.view(np.uint32), selector)
                assert columns.min() >= 0
                row = block * rows + 16 * selector + np.arange(16)[:, None]
                dense[row, i * step + columns] = values[row, i * step // 2 + np.arange(step // 2)]
    assert np.array_equal(dense[:m, :k], wide(sparse.to_dense()))


def cutlass_order(m, columns, wide_elements):
    """Where CUTLASS puts element (row, column) of metadata, as its reordering is described: rows of a group of 32 (16
    where elements have 32 bits) are dealt out eight apart, the off-diagonal of each 2 x 2 is exchanged, and pairs of
    columns follow each other."""
    group, dealt = (16, 2) if wide_elements else (32, 4)
    place = {}
    for row in range(m):
        for column in range(columns):
            r, c = row // group * group + row % 8 * dealt + row % group // 8, column
            if r % 2 != c % 2:
                r, c = (r + 1, c - 1) if c % 2 else (r - 1, c + 1)
            place[row, column] = c // 2 * 2 * m + 2 * r + c % 2
    return place


@pytest.mark.parametrize("dtype", TYPES)
def test_packed_words_are_in_the_order_of_cutlass(dtype):
    sparse = wt.sparsify(drawn(96, 192, dtype))
    values, meta = sparse.to_cutlass()
    size = 4 if values.itemsize == 1 else 2
    by_row = np.ascontiguousarray(sparse.metadata).view(f"i{size}")
    assert values is sparse.values
    assert meta.dtype == by_row.dtype
    assert meta.shape == by_row.shape
    order = cutlass_order(*by_row.shape, size == 4)
    assert sorted(order.values()) == list(range(by_row.size))
    assert all(meta.flat[place] == by_row[index] for index, place in order.items())
    back = wt.SparseMatrix.from_cutlass(values, meta)
    assert np.array_equal(back.metadata, sparse.metadata)


# --- torch ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def as_tensor(torch, array):
    return torch.from_numpy(array.view(f"i{array.itemsize}").copy()).view(getattr(torch, array.dtype.name))


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_and_numpy_store_the_same_bytes(torch, dtype):
    w = drawn(35, 76, dtype)
    here, there = wt.sparsify(w), wt.sparsify(as_tensor(torch, w))
    assert there.values.view(torch.uint8).numpy().tobytes() == here.values.tobytes()
    assert there.metadata.numpy().tobytes() == here.metadata.tobytes()
    assert there.packed().numpy().tobytes() == here.packed().tobytes()
    assert there.to_dense().dtype == there.dtype == getattr(torch, dtype)
    assert there.to_dense().view(torch.uint8).numpy().tobytes() == here.to_dense().tobytes()
    assert there.nbytes == here.nbytes
    with pytest.raises(LayoutError, match="row 0, k 0 to"):
        wt.sparsify(as_tensor(torch, np.ones((2, 8), w.dtype)), exact=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_torch_reads_and_writes_the_same_tensors(torch, dtype):
    from torch.sparse import _semi_structured_conversions as theirs

    # Whole numbers: torch 2.13 moves float32 as pairs of float16, and changes low halves that are a signalling NaN.
    ours = wt.sparsify(as_tensor(torch, np.round(drawn(64, 256, dtype)).astype(np.dtype(dtype))))
    dense = ours.to_dense()
    values, meta = theirs.sparse_semi_structured_from_dense_cutlass(dense)
    assert meta.dtype == ours.to_cutlass()[1].dtype
    assert torch.equal(theirs.sparse_semi_structured_to_dense_cutlass(*ours.to_cutlass()), dense)
    assert torch.equal(wt.SparseMatrix.from_cutlass(values, meta).to_dense(), dense)
    # Where a group has too few values, which zero is kept is anybody's choice: compare a matrix that has none.
    full = wt.sparsify(as_tensor(torch, np.full((64, 256), 3, np.dtype(dtype)) + (drawn(64, 256, dtype) > 0)))
    assert torch.equal(theirs.sparse_semi_structured_from_dense_cutlass(full.to_dense())[1], full.to_cutlass()[1])


@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor:UserWarning")
def test_torch_tensors_go_there_and_back(torch):
    ours = wt.sparsify(as_tensor(torch, drawn(64, 128, "float16")))
    tensor = ours.to_torch()
    assert isinstance(tensor, torch.sparse.SparseSemiStructuredTensorCUTLASS)
    assert torch.equal(tensor.to_dense(), ours.to_dense())
    back = wt.SparseMatrix.from_torch(tensor)
    assert torch.equal(back.metadata, ours.metadata)
    assert back.values.data_ptr() == ours.values.data_ptr()
    only_transpose = torch.sparse.SparseSemiStructuredTensorCUTLASS(
        tensor.shape,
        packed=None,
        meta=None,
        packed_t=tensor.packed,
        meta_t=tensor.meta,
        compressed_swizzled_bitmask=None,
    )
    with pytest.raises(LayoutError, match="only its transpose"):
        wt.SparseMatrix.from_torch(only_transpose)


def test_numpy_values_do_not_become_a_torch_tensor():
    with pytest.raises(LayoutError, match=r"sparsify\(torch.from_numpy\(w\)\)"):
        wt.sparsify(np.zeros((32, 64), np.float16)).to_torch()
    with pytest.raises(LayoutError, match="from_torch takes"):
        wt.SparseMatrix.from_torch(np.zeros((32, 64), np.float16))


# --- refused -------------------------------------------------------------------------------------------------------


def test_a_matrix_that_is_not_sparse_is_named_where_it_is_not():
    w = np.zeros((5, 16), np.float16)
    w[3, 8:12] = [1, -2, 0, 3]
    w[4, 0:4] = 1
    with pytest.raises(LayoutError) as error:
        wt.sparsify(w, exact=True)
    assert "row 3, k 8 to 11 holds (1, -2, 0, 3), of which 3 are not zero; a 2:4 matrix has at most 2" in str(
        error.value
    )
    with pytest.raises(LayoutError, match=r"row 0, k 2 to 3 holds \(1, 4\), of which 2 .* a 1:2 matrix"):
        wt.sparsify(np.array([[0, 1, 1, 4]], np.float32), exact=True)
    w[3] = 0
    w[4] = 0
    w[2, :2], w[2, 2:4] = np.nan, -0.0
    assert np.isnan(wt.sparsify(w, exact=True).to_dense()[2, :2]).all()


@pytest.mark.parametrize(
    ("w", "error", "words"),
    [
        (np.zeros((4, 6), np.float16), ShapeError, "K is 6; 2 of 4 float16 need a multiple of 4: pad .* 2 columns"),
        (np.zeros((4, 5), np.float32), ShapeError, "K is 5; 1 of 2 float32 need a multiple of 2: pad .* 1 columns"),
        (np.zeros(8, np.float16), ShapeError, r"got shape \(8,\); sparsify takes one matrix"),
        (np.zeros((2, 2, 8), np.float16), ShapeError, r"w.reshape\(-1, K\)"),
        (np.zeros((4, 8)), DTypeError, r"got float64; mma.sp multiplies .* such as w.astype\('float16'\)"),
        (np.zeros((4, 8), np.int32), DTypeError, "got int32"),
        ([[0.0] * 8], DTypeError, "not an array"),
    ],
)
def test_what_cannot_be_sparse_is_refused_with_a_remedy(w, error, words):
    with pytest.raises(error, match=words):
        wt.sparsify(w)


def test_parts_that_do_not_belong_together_are_refused():
    sparse = wt.sparsify(drawn(32, 64, "float16"))
    with pytest.raises(ShapeError, match=r"it is uint8 of shape \(32, 8\): sparsify\(w\) makes both"):
        wt.SparseMatrix(sparse.values, sparse.metadata[:, :4])
    with pytest.raises(ShapeError, match="it is uint8"):
        wt.SparseMatrix(sparse.values, sparse.metadata.view(np.int8))
    with pytest.raises(ShapeError, match="a row holds 31"):
        wt.SparseMatrix(sparse.values[:, :31], sparse.metadata)
    with pytest.raises(ShapeError, match="has "):
        wt.SparseMatrix(sparse.values[0], sparse.metadata)
    values, meta = sparse.to_cutlass()
    with pytest.raises(ShapeError, match="here with 256 bytes of metadata"):
        wt.SparseMatrix.from_cutlass(values, meta[:, :2])
    broken = meta.copy()
    broken.view(np.uint8)[0, 0] = 0x45
    with pytest.raises(LayoutError, match="row 0, group 0 holds 0x5; ordered metadata of float16 is one of 0x4, 0x8"):
        wt.SparseMatrix.from_cutlass(values, broken)


@pytest.mark.parametrize(("dtype", "blocks"), [("float16", "32 x 32"), ("float32", "32 x 16"), ("int8", "16 x 64")])
def test_ragged_matrices_have_no_form_in_cutlass(dtype, blocks):
    with pytest.raises(ShapeError, match=f"in whole blocks of {blocks}; this matrix is 33 x 36: pad"):
        wt.sparsify(drawn(33, 36, dtype)).to_cutlass()


def test_group_widths():
    assert [group_width(DTYPES[name]) for name in ELEMENTS] == [4, 4, 2, 4, 4, 4, 4]
