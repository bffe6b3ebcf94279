"""Operands cut from a pool, on a GPU that is not there: what the host expects is what the launch computes."""

import itertools

import numpy as np
import pytest

from pretended_gpu import DEVICE, L2_SIZES, PretendedGpu
from warptile.bench.protocol.operand_pool import OperandPool, PooledProduct, spread
from warptile.dtypes import dtype
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.runtime.device_product import Launcher

RUNG = "mma-final"
SMALL_L2 = 40_000


def problem(m, n, k, element="float16", **options):
    of = dtype(element)
    sums = dtype(of.accumulators[0])
    return Problem.dense(m, n, k, of, out=dtype("int32") if sums.kind == "int" else of, accumulator=sums, **options)


def pooled(given, offset=0):
    return PooledProduct(given, OperandPool(given.a.dtype, [given], SMALL_L2), Launcher(), SMALL_L2, offset)


@pytest.fixture
def gpu(monkeypatch):
    return PretendedGpu().install(monkeypatch, L2_SIZES)  # of the small L2 that tests give


@pytest.mark.parametrize("a_major", ["row", "col"])
@pytest.mark.parametrize("b_major", ["row", "col"])
@pytest.mark.parametrize("element", ["float16", "int8"])
def test_a_right_product_passes_in_every_layout(gpu, a_major, b_major, element):
    given = problem(61, 83, 40, element, a_major=a_major, b_major=b_major)
    product = pooled(given)
    found = product.check(make_plan(given, rung="mma-naive" if a_major == "col" else RUNG))
    assert found.wrong is None
    assert found.error_ratio <= 1
    assert product.sets > 1


def test_displaced_operands_and_batches_are_where_the_host_looks(gpu):
    moved = problem(64, 72, 48).displaced(1)
    assert pooled(moved, 1).check(make_plan(moved, rung=RUNG)).wrong is None
    batch = problem(48, 40, 32, batch=3, b_major="col")
    assert pooled(batch).check(make_plan(batch, rung="wgmma-final", arch="sm_90a")).wrong is None


@pytest.mark.parametrize(
    ("fault", "message"), [("wrong", "wrong result"), ("lazy", "never written"), ("outside", "outside D")]
)
@pytest.mark.parametrize("whole", [True, False])
def test_faults_are_seen(gpu, monkeypatch, fault, message, whole):
    from warptile.bench.protocol import operand_pool

    if not whole:
        monkeypatch.setattr(operand_pool, "WHOLE_BYTES", 0)
    given = problem(64, 72, 48)
    getattr(gpu, fault).add(RUNG)
    assert message in pooled(given).check(make_plan(given, rung=RUNG)).wrong


def test_sets_do_not_overlap_and_all_are_launched(gpu):
    given = problem(64, 72, 48)
    product = pooled(given)
    places = [product.pointers(index) for index in range(product.sets)]
    sizes = {"A": 64 * 48 * 2, "B": 48 * 72 * 2, "D": 64 * 72 * 2}
    ranges = sorted((each[name], each[name] + size) for each in places for name, size in sizes.items())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    candidate = product.candidate(make_plan(given, rung=RUNG))
    for index in range(candidate.sets):
        candidate.launch(index, 7)
    assert (candidate.sets, gpu.launches) == (product.sets, product.sets)


@pytest.mark.parametrize("b_major", ["row", "col"])
def test_a_and_b_are_not_the_same_numbers_where_a_is_a_whole_block(gpu, monkeypatch, b_major):
    monkeypatch.setattr("warptile.bench.protocol.operand_pool.BLOCK", 64 * 64 - 3)
    given = problem(64, 64, 64, a_major="col", b_major=b_major)
    product = pooled(given)
    expected = product.expected("mma")
    assert product.check(make_plan(given, rung="mma-naive")).wrong is None
    assert np.abs(expected.d).max() < 40  # of 64 products of normal numbers; 64 and more are sums of squares


def test_a_pool_holds_the_largest_of_its_problems(gpu):
    problems = [problem(64, 72, 48), problem(8, 16, 24)]
    operand_pool = OperandPool(problems[0].a.dtype, problems, DEVICE.l2_bytes)
    for given in problems:
        product = PooledProduct(given, operand_pool, Launcher(), DEVICE.l2_bytes)
        last = product.pointers(product.sets - 1)
        b_bytes, d_bytes = given.k * given.n * 2, given.m * given.n * 2
        assert last["B"] + b_bytes <= operand_pool.operands.address + operand_pool.operands.size_bytes
        assert last["D"] + d_bytes + 256 <= operand_pool.results.address + operand_pool.results.size_bytes


def test_places_are_spread_over_all_bands():
    found = spread(1000, 96)
    gaps = [after - before for before, after in itertools.pairwise([-1, *found, 1000])]
    assert len(found) == 96
    assert 1 <= min(gaps) <= max(gaps) <= 2 * 1000 / 96 + 1
    assert list(spread(5, 96)) == [0, 1, 2, 3, 4]
