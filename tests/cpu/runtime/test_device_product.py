"""Operands, launches and checks of a problem on a pretended GPU."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from pretended_gpu import L2_SIZES, PretendedGpu
from warptile.arrays.array_view import packed
from warptile.dtypes import DTYPES, dtype
from warptile.gpu import timing
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.runtime.device_product import DENSE, GUARD_BYTES, CheckResult, DeviceProduct, unwritten_elements
from warptile.runtime.host_operands import draw, set_bytes
from warptile.verify.reference import products_per_rounding


def dense(m, n, k, name="float16", out="float16", accumulator="float32", **options):
    return Problem.dense(m, n, k, dtype(name), out=dtype(out), accumulator=dtype(accumulator), **options)


@pytest.fixture
def gpu(monkeypatch):
    return PretendedGpu().install(monkeypatch)


def test_data_is_normal_or_covers_the_integers():
    half = draw((300, 200), DTYPES["float16"], 1)
    assert half.dtype == np.float16
    assert abs(float(half.astype(np.float64).mean())) < 0.02
    assert float(half.astype(np.float64).std()) == pytest.approx(1.0, abs=0.02)
    bytes_ = draw((300, 200), DTYPES["int8"], 1)
    assert (bytes_.min(), bytes_.max()) == (-128, 127)
    assert not np.array_equal(draw((30, 20), DTYPES["float32"], 1), draw((30, 20), DTYPES["float32"], 2))


def test_a_large_matrix_repeats_a_block_out_of_step_with_its_rows(monkeypatch):
    monkeypatch.setattr("warptile.runtime.host_operands._BLOCK", 1021)
    drawn = draw((64, 64), DTYPES["float32"], 0)
    assert drawn.shape == (64, 64)
    assert len({row.tobytes() for row in drawn}) == 64
    np.testing.assert_array_equal(drawn.reshape(-1)[1021:2042], drawn.reshape(-1)[:1021])


def test_operand_sets_outlast_l2(gpu, monkeypatch):
    monkeypatch.setattr(timing, "_L2_SIZES", L2_SIZES)
    problem = dense(1024, 1024, 1024)
    assert set_bytes(problem) == 3 * 2 * 2**20
    product = DeviceProduct(dense(256, 256, 256))
    assert product.sets * set_bytes(product.problem) >= 4 * 60 * 2**20
    product.close()


def test_sets_hold_the_same_numbers_in_another_place(gpu):
    product = DeviceProduct(dense(8, 16, 24), sets=2)
    first, second = (memory.to_host(np.empty((8, 24), np.float16), GUARD_BYTES) for memory in product._of_a["A"])
    np.testing.assert_array_equal(first, product.a)
    assert not np.array_equal(first, second)
    assert sorted(first.reshape(-1)) == sorted(second.reshape(-1))


@pytest.mark.parametrize("b_major", ["row", "col"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (0.5, -1.5)])
def test_a_right_result_passes_every_check(gpu, b_major, alpha, beta):
    problem = dense(40, 24, 72, b_major=b_major, with_c=beta != 0)
    product = DeviceProduct(problem, sets=1, alpha=alpha, beta=beta)
    found = product.check(make_plan(problem, rung="wmma-naive"), product.reference())
    assert found.wrong is None
    assert (found.unwritten, found.guards_intact, found.rows) == (0, True, 40)


@pytest.mark.parametrize(
    ("defect", "message"),
    [("wrong", "wrong result: the error is"), ("outside", "wrote outside D"), ("lazy", "24 elements of D were never")],
)
def test_defects_are_seen_even_where_no_row_is_compared(gpu, defect, message):
    getattr(gpu, defect).add("wmma-naive")
    problem = dense(40, 24, 72)
    product = DeviceProduct(problem, sets=1)
    rows = np.array([3])  # the lazy kernel skips the last row only
    found = product.check(make_plan(problem, rung="wmma-naive"), product.reference(rows), rows)
    assert message in found.wrong


def test_the_check_repeats_after_a_right_result(gpu):
    problem = dense(40, 24, 72)
    product = DeviceProduct(problem, sets=1)
    plan, expected = make_plan(problem, rung="wmma-naive"), product.reference()
    assert product.check(plan, expected).wrong is None
    gpu.lazy.add("wmma-naive")  # what the first launch left must not count
    assert product.check(plan, expected).unwritten == 24


def test_nan_is_wrong():
    assert CheckResult(float("nan"), 0, True, np.zeros(1)).wrong.startswith("wrong result")
    assert CheckResult(float("inf"), 0, True, np.zeros(1)).wrong.startswith("wrong result")
    assert CheckResult(1.0, 0, True, np.zeros(1)).wrong is None


def test_unwritten_integers_are_runs_of_the_fill():
    d = np.zeros(64, np.int32)
    d[5] = -1  # a result may be -1
    assert unwritten_elements(d.view(np.uint8), DTYPES["int32"]) == 0
    d[16:48] = -1
    assert unwritten_elements(d.view(np.uint8), DTYPES["int32"]) == 32
    half = np.zeros(64, np.uint16)
    half[7] = 0xFFFF  # no float result has this pattern
    assert unwritten_elements(half.view(np.uint8), DTYPES["float16"]) == 1


def test_only_tensor_cores_add_several_products_at_once():
    half, double = DTYPES["float16"], DTYPES["float64"]
    assert (products_per_rounding("simt", half), products_per_rounding("wmma", half)) == (1, 8)
    assert products_per_rounding("mma", double) == 1


@pytest.mark.parametrize(("name", "together"), [("int4", 2), ("bit1", 8)])
def test_narrow_operands_are_stored_packed(gpu, name, together):
    product = DeviceProduct(dense(8, 16, 64, name, "int32", "int32", b_major="col"), sets=2)
    stored = product._of_a["A"][0].to_host(np.empty((8, 64 // together), np.uint8), GUARD_BYTES)
    np.testing.assert_array_equal(stored, packed(product.a, DTYPES[name]))
    assert product.b.shape == (64, 16)
    want = product.a.astype(np.int64) @ product.b.astype(np.int64)
    np.testing.assert_array_equal(product.reference().d, want)
    product.close()


def test_a_may_lie_by_columns(gpu):
    product = DeviceProduct(dense(8, 16, 24, a_major="col"), sets=1)
    assert product.a.shape == (8, 24)
    stored = product._of_a["A"][0].to_host(np.empty((24, 8), np.float16), GUARD_BYTES)
    np.testing.assert_array_equal(stored.T, product.a)
    product.close()


def test_a_sparse_a_is_stored_as_its_kept_half_with_metadata(gpu):
    product = DeviceProduct(dense(32, 16, 64, sparse=True), sets=1)
    groups = (product.a.reshape(32, 16, 4) != 0).sum(axis=2)
    assert groups.max() == 2
    kept = product._of_a["A"][0].to_host(np.empty((32, 32), np.float16), GUARD_BYTES)
    np.testing.assert_array_equal(kept[0][kept[0] != 0], product.a[0][product.a[0] != 0])
    whole = product._of_a[DENSE][0].to_host(np.empty((32, 64), np.float16), GUARD_BYTES)
    np.testing.assert_array_equal(whole, product.a)
    assert product.pointers(0).keys() == {"A", "E", DENSE, "B", "D"}
    rows = np.array([3, 30])
    exact = product.exact_before_rounding(rows)
    assert np.max(np.abs(exact - product.reference(rows).d)) < 0.05
    product.close()


def test_matrices_may_begin_anywhere(gpu):
    problem = dense(8, 16, 24, with_c=True).displaced(3)
    assert {operand.alignment_bytes for operand in (problem.a, problem.b, problem.c, problem.d)} == {2}
    product = DeviceProduct(problem, sets=1, beta=1.0, offset_elements=3)
    assert {address % 256 for name, address in product.pointers(0).items()} == {6}
    plan = make_plan(problem, rung="wmma-naive")
    found = product.check(plan, product.reference(products_per_rounding=8))
    assert found.wrong is None
    gpu.outside.add("wmma-naive")
    assert product.check(plan, product.reference(products_per_rounding=8)).wrong == "it wrote outside D"
    product.close()


def padded(problem, elements):
    parts = {name: getattr(problem, name) for name in "abcd" if getattr(problem, name) is not None}
    return replace(
        problem,
        **{name: replace(part, leading_dimension=part.leading_dimension + elements) for name, part in parts.items()},
    )


@pytest.mark.parametrize("a_major", ["row", "col"])
def test_rows_may_have_gaps_that_nothing_reads_or_writes(gpu, a_major):
    problem = padded(dense(8, 16, 24, a_major=a_major, with_c=True), 8)
    product = DeviceProduct(problem, sets=1, beta=1.0)
    plan = make_plan(dense(8, 16, 24, with_c=True), rung="wmma-naive")
    plan = replace(plan, problem=problem)
    expected = product.reference(products_per_rounding=8)
    assert product.check(plan, expected).wrong is None
    gpu.between.add("wmma-naive")
    assert product.check(plan, expected).wrong == "it wrote outside D"


def test_a_write_around_an_operand_is_seen(gpu):
    problem = dense(8, 16, 24)
    product = DeviceProduct(problem, sets=1)
    plan, expected = make_plan(problem, rung="wmma-naive"), product.reference(products_per_rounding=8)
    assert product.check(plan, expected).wrong is None
    ctypes.memset(product.pointers(0)["B"] - 1, 0, 1)
    assert product.check(plan, expected).wrong == "it wrote outside D"
