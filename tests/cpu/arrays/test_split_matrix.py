"""Split matrices: slices as the pass makes them, what is refused, saving, and results with the bits of unsplit ones."""

import io

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering
from warptile.emulator import emulate
from warptile.launch.access import NOTHING, Access
from warptile.ptx import parse
from warptile.rungs import operand_copies
from warptile.rungs.operand_split import Split
from warptile.runtime.execute import KERNELS, copy_source
from warptile.slicing import SlicedLines

SPLIT = {"rung": "wgmma-split", "backend": "emulator"}
EMULATED = {"backend": "emulator"}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def awkward(lines, k, seed=0):
    """Lines of many kinds: zeros, subnormal numbers, infinities and NaN, some that can be split, some that cannot."""
    rng = np.random.default_rng(seed)
    w = drawn(lines, k, seed=seed)
    w[3] = 0
    w[5] *= np.float32(1e-41)
    w[7, 2], w[9, k - 1], w[11, 0] = np.inf, -np.inf, np.nan
    w[13, k // 2] = 3e38
    w[15, 1] = 0
    for line in range(16, lines):  # down to the range from which on a line has no slices, and beyond
        w[line, k // 3] = np.exp2(rng.uniform(-40, -20))
        w[line] *= np.exp2(np.float32(rng.integers(-100, 100)))
    return w


def slices_of(matrix):
    """High and low slices and exponents of a split matrix, in lines."""
    how = matrix.format
    slices = matrix.packed[how.slices_offset_bytes : how.exponents_offset_bytes].view(np.float16)
    slices = slices.reshape(2, how.lines, how.slice_stride)[:, :, : how.k]
    return slices, matrix.packed[how.exponents_offset_bytes :].view(np.int32)


@pytest.mark.parametrize(("lines", "k", "contiguous"), [(130, 200, True), (45, 4100, True), (70, 333, False)])
def test_slices_are_bit_for_bit_those_of_the_pass(lines, k, contiguous):
    w = awkward(lines, k)
    source = w if contiguous else np.ascontiguousarray(w.T)
    strides = (k, 1) if contiguous else (1, lines)
    how = Split("A", lines, k, *strides, 16 if k % 4 == 0 else 4)
    compiled = KERNELS.ptx(copy_source((how,)), "sm_90a")
    memory = {"A": source.view(np.uint8).reshape(-1)}
    memory |= {name: np.zeros(size, np.uint8) for name, size, _ in how.targets}
    accesses = {name: Access(writes=True, complete=rows, holds=NOTHING) for name, _, rows in how.targets}
    spec = operand_copies.launch((how,), compiled.entry)
    emulate(parse(compiled.ptx.decode()), spec, memory, accesses=accesses, arch="sm_90a")
    expected = memory[how.target].view(np.uint16).reshape(2, lines, how.target_stride)[:, :, :k]

    made = wt.split(source if contiguous else source.T, axis=1)
    slices, exponents = slices_of(made)
    assert np.array_equal(slices.view(np.uint16), expected)
    assert np.array_equal(exponents, memory[how.exponents].view(np.int32))
    assert lines // 8 < made.unsplit_lines() < 3 * lines // 4
    assert np.array_equal(made.matrix.view(np.uint32), w.view(np.uint32))


@pytest.mark.parametrize("extents", [(1, 1), (37, 5), (300, 48), (0, 5), (5, 0)], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_what_it_says_of_itself(extents, axis):
    w = drawn(*extents)
    made = wt.split(w, axis=axis)
    lines, k = extents[::-1] if axis == 0 else extents
    assert made.shape == extents == made.matrix.shape == made.T.shape[::-1]
    assert made.dtype == np.float32
    assert np.array_equal(made.matrix, w)
    assert np.array_equal(made.T.matrix, w.T)
    assert made.T.axis == 1 - axis
    assert np.shares_memory(made.matrix, made.packed) or 0 in extents
    assert made.nbytes == SlicedLines(lines, k).bytes
    assert made.unsplit_lines() == 0
    assert repr(made) == f"SplitMatrix(shape={extents}, dtype=float32, axis={axis}, nbytes={made.nbytes})"
    assert wt.split(w, axis=axis - 2).axis == axis


def test_it_takes_twice_the_memory_of_the_matrix():
    made = wt.split(np.ones((4096, 1000), np.float32))
    assert made.nbytes <= 8 * 4096 * 1000 + 4 * 1000 + 128


def test_a_later_change_of_the_matrix_is_not_seen():
    a, w = drawn(20, 64), drawn(64, 24)
    made, before = wt.split(w), wt.matmul(a, w, **SPLIT)
    w[:] = np.nan
    assert np.array_equal(wt.matmul(a, made, **SPLIT), before)


def test_saving_and_loading():
    made, file = wt.split(awkward(30, 70), axis=1), io.BytesIO()
    np.savez(file, **made.state())
    file.seek(0)
    loaded = wt.SplitMatrix(**np.load(file))
    assert loaded.key == made.key == ((30, 70), 1)
    assert np.array_equal(loaded.packed, made.packed)


@pytest.mark.parametrize(
    ("layout", "extents"),
    covering(range(4), [(139, 151 if ALL else 71, 83), (5, 257, 129), (1, 1, 1)], pairs=()),
    ids=str,
)
def test_products_have_the_bits_of_unsplit_operands(layout, extents):
    m, n, k = extents
    a = drawn(m, k) if layout % 2 else drawn(k, m).T
    b = drawn(k, n) if layout // 2 else drawn(n, k + 1).T[1:]  # columns with gaps
    if m > 5:
        a[3, 7], a[4, 1], b[5, 2], b[2, 1] = 1e15, np.inf, -1e25, np.nan
    expected = wt.matmul(a, b, **SPLIT)
    left, right = wt.split(a, axis=1), wt.split(b)
    assert np.isfinite(expected).any()
    pairs = [(left, right), (a, right), (left, b)]
    for operands in pairs if ALL else pairs[layout % 3 :][:1]:
        found = wt.matmul(*operands, **SPLIT)
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_with_everything_else_that_a_call_has():
    a, b, c, bias = drawn(37, 100), drawn(100, 50), drawn(37, 50), drawn(50)
    made = wt.split(b)
    expected, out = wt.matmul(a, b, c, alpha=-0.5, beta=2.0, **SPLIT), c.copy()
    assert wt.matmul(a, made, out, alpha=-0.5, beta=2.0, out=out, **SPLIT) is out
    assert np.array_equal(out, expected)
    fused = [
        wt.matmul(a, each, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **SPLIT) for each in (b, made)
    ]
    assert np.array_equal(*fused)
    held = wt.plan(a, made, c, **SPLIT)
    assert np.array_equal(held(a, made, c), wt.matmul(a, b, c, **SPLIT))
    assert "slices     of B are kept" in held.explain()
    assert [each.source for each in held.plan.kernel.copies] == ["A"]
    assert [each.name for each in held.plan.kernel.workspaces] == ["split A", "exponents of A"]
    assert wt.plan(wt.split(a, axis=1), made, **SPLIT).plan.kernel.copies == ()


def test_an_out_inside_guard_bands():
    a, b = drawn(131, 70), drawn(70, 135)
    guarded = np.full((133, 151), np.nan, np.float32)
    wt.matmul(a, wt.split(b), out=guarded[1:-1, 8:-8], **SPLIT)
    assert np.array_equal(guarded[1:-1, 8:-8], wt.matmul(a, b, **SPLIT))
    guarded[1:-1, 8:-8] = np.nan
    assert np.isnan(guarded).all()


def test_several_rows_of_matrices_and_vectors():
    a, b = drawn(2, 2, 5, 64), drawn(64, 20)
    made = wt.split(b)
    assert np.array_equal(wt.matmul(a, made, **SPLIT), wt.matmul(a.reshape(-1, 64), b, **SPLIT).reshape(2, 2, 5, 20))
    assert np.array_equal(wt.matmul(a[0, 0, 0], made, **SPLIT), wt.matmul(a[0, 0, 0], b, **SPLIT))
    shared = wt.matmul(wt.split(b.T, axis=1), drawn(2, 64, 7), **SPLIT)
    assert np.array_equal(shared, wt.matmul(b.T, drawn(2, 64, 7), **SPLIT))


def test_linear():
    x, w, bias = drawn(2, 9, 70), drawn(24, 70), drawn(24)
    made = wt.split(w, axis=1)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.abs(wt.linear(x, made, bias, **EMULATED) - (exact + bias)).max() <= 1e-5
    assert np.array_equal(wt.linear(x, made, bias, **EMULATED), wt.matmul(x, made.T, bias, **EMULATED))
    fused = wt.linear(x, made, bias, epilogue=wt.relu, **EMULATED)
    assert np.abs(fused - np.maximum(exact + bias, 0)).max() <= 1e-5


def test_other_kernels_read_the_matrix_itself():
    a, b = drawn(3, 200), drawn(200, 90)
    b[3, 5] = 1e30
    for rung in ("simt-gemv", "simt-warptile"):
        expected = wt.matmul(a, np.ascontiguousarray(b.T).T, rung=rung, **EMULATED)
        assert np.array_equal(wt.matmul(a, wt.split(b), rung=rung, **EMULATED), expected)
    large = wt.plan(drawn(2048, 1024), wt.split(drawn(1024, 1024)), **EMULATED).plan
    assert large.rung.name == "wgmma-split"
    assert large.prediction.time_ms < wt.plan(drawn(2048, 1024), drawn(1024, 1024), **EMULATED).plan.prediction.time_ms


def test_extents_of_zero_and_factors_of_zero():
    a, made = drawn(4, 20), wt.split(drawn(20, 6))
    assert not wt.matmul(np.zeros((4, 0), np.float32), wt.split(np.zeros((0, 6), np.float32)), **EMULATED).any()
    assert wt.matmul(a, wt.split(np.zeros((20, 0), np.float32)), **EMULATED).shape == (4, 0)
    assert wt.matmul(a[:0], made, **EMULATED).shape == (0, 6)
    assert not wt.matmul(a, made, alpha=0, **EMULATED).any()


def test_batch_invariance():
    a, made = drawn(140, 200), wt.split(drawn(200, 70))
    whole = wt.matmul(a, made, batch_invariant=True, **EMULATED)
    for rows in (slice(0, 1), slice(3, 20), slice(100, 140)):
        assert np.array_equal(wt.matmul(a[rows], made, batch_invariant=True, **EMULATED), whole[rows])


A, B = drawn(13, 20), drawn(20, 16)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: wt.matmul(A, wt.split(B, axis=1)), wt.LayoutError, r"b: .*along axis 1; .*split\(w, axis=0\)"),
        (lambda: wt.matmul(wt.split(A), B), wt.LayoutError, r"a: .*along axis 0; .*split\(w, axis=1\)"),
        (lambda: wt.linear(A, wt.split(B.T)), wt.LayoutError, r"split\("),
        (lambda: wt.matmul(A.astype("float64"), wt.split(B)), wt.DTypeError, r"matmul\(a.astype\('float32'\), b\)"),
        (lambda: wt.matmul(wt.split(A, 1), B.astype("float16")), wt.DTypeError, r"matmul\(a, b.astype\('float32'\)\)"),
        (lambda: wt.matmul(A, wt.split(B), precision="ieee"), wt.UnsupportedError, r"b.matrix, precision='ieee'"),
        (lambda: wt.matmul(A, wt.split(B), precision="tf32"), wt.UnsupportedError, "leave precision out"),
        (lambda: wt.matmul(A[:, :5], wt.split(B)), wt.ShapeError, r"a has shape \(13, 5\) and b has shape \(20, 16\)"),
        (lambda: wt.matmul(A, wt.split(B), out_dtype="float16"), wt.DTypeError, "float32"),
        (lambda: wt.matmul(A, wt.split(B), epilogue=lambda acc: wt.halves(acc)[0]), wt.UnsupportedError, "packed"),
        (lambda: wt.split(B.astype("float16")), wt.DTypeError, "give w itself"),
        (lambda: wt.split(B.astype("float64")), wt.DTypeError, r"split\(w.astype\('float32'\)\)"),
        (lambda: wt.split(B[None]), wt.ShapeError, r"w.reshape\(-1, 16\)"),
        (lambda: wt.split(B, axis=2), wt.ArgumentError, "axis: got 2"),
        (lambda: wt.split([1.0]), wt.DTypeError, "not an array"),
        (lambda: wt.split(wt.split(B)), wt.DTypeError, r"such as w\.matrix$"),
        (lambda: wt.matmul_grouped(A, wt.split(B), np.array([13])), wt.DTypeError, r"such as b\.matrix$"),
        (lambda: wt.SplitMatrix(np.zeros(7, np.uint8), (2, 3), 0), wt.ShapeError, r"shape \(7,\)"),
        (lambda: wt.SplitMatrix(np.zeros(2 * 164, np.uint8)[::2], (2, 3), 1), wt.WarptileError, "packed"),
        (lambda: wt.split(B).to("cpu"), wt.LayoutError, "torch"),
        (lambda: wt.SplitMatrix(wt.split(B).packed, 3, 0), wt.ShapeError, "shape: got 3; it is that of the matrix"),
        (lambda: wt.SplitMatrix(wt.split(B).packed, "ab", 0), wt.ShapeError, "shape: got 'ab'"),
        (lambda: wt.SplitMatrix(wt.split(B).packed, B.shape, np.arange(2)), wt.ArgumentError, "axis: got array"),
        (lambda: wt.SplitMatrix(None, B.shape, 0), wt.DTypeError, r"packed: got NoneType; .*split\(w\)"),
    ],
)  # fmt: skip
def test_what_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.skipif(not ALL, reason="make test-all")
@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(each) for each in rng.integers(1, 400, 3))
    a = drawn(m, k, seed=seed) if seed % 2 else drawn(k, m, seed=seed).T
    b = drawn(k, n, seed=seed) if seed % 3 else drawn(n, k, seed=seed).T
    a = a * np.exp2(rng.integers(-20, 20, a.shape)).astype(np.float32)
    expected = wt.matmul(a, b, **SPLIT)
    assert np.array_equal(wt.matmul(a, wt.split(b), **SPLIT), expected)
    assert np.array_equal(wt.matmul(wt.split(a, axis=1), b, **SPLIT), expected)
