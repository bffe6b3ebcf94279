"""Reductions in epilogues: sums, largest and smallest elements of rows, columns and all of a value."""

import re

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering
from epilogue_cases import SCHEDULES, emulated
from warptile.rungs import RUNGS
from warptile.runtime import execute


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")


def drawn(*shape, dtype="float16"):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32).astype(dtype)


def every_reduction(acc, bias):
    y = wt.relu(acc + bias)
    return (
        y, y.sum(axis=-1), abs(acc).max(axis=-2), np.max(abs(y)), (acc * acc).sum(axis=-1, keepdims=True),
        acc.min(axis=-2), acc.sum(axis=(-2, -1)),
    )  # fmt: skip


def reference(acc, bias):
    y = np.maximum(acc + bias, 0)
    return (
        y, y.sum(-1), abs(acc).max(-2), abs(y).max(), (acc * acc).sum(-1, keepdims=True), acc.min(-2),
        acc.sum((-2, -1)),
    )  # fmt: skip


def assert_right(a, b, bias, **options):
    outputs = wt.matmul(a, b, epilogue=every_reduction, bias=bias, **options)
    expected = reference(a.astype(np.float64) @ b.astype(np.float64), bias.astype(np.float64))
    assert outputs[0].dtype == a.dtype
    for number, (found, exact) in enumerate(zip(outputs, expected, strict=True)):
        assert found.shape == exact.shape, number
        error = np.abs(np.asarray(found, np.float64) - exact).max()
        assert error <= (2e-3 if number == 0 else 2e-5) * max(np.abs(exact).max(), 1), number
    return outputs


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [
        (*extents, dtype)
        for extents, dtype in covering(
            [(70, 137, 36), (1, 130, 64), (33, 40, 24)], ["float16", "float32", "float64"], pairs=()
        )
    ],
)
def test_values(m, n, k, dtype):
    outputs = assert_right(drawn(m, k, dtype=dtype), drawn(n, k, dtype=dtype).T, drawn(n, dtype=dtype))
    assert {each.dtype for each in outputs[1:]} == {np.dtype("float64" if dtype == "float64" else "float32")}


@pytest.mark.parametrize("name", SCHEDULES if ALL else ["overlapped", "stream-K"])
def test_schedules_of_the_last_rung(name):
    assert_right(drawn(136, 192), drawn(200, 192).T, drawn(200), rung="wgmma-final", config=emulated(name))


@pytest.mark.parametrize(
    "rung", ["simt-naive", "wmma-final", "mma-final", "wgmma-tma"] if ALL else ["simt-naive", "wmma-final", "wgmma-tma"]
)
def test_other_rungs(rung):
    assert rung in RUNGS
    assert_right(drawn(65, 64), drawn(72, 64).T, drawn(72), rung=rung)


@pytest.mark.parametrize("one_launch", [True, False])
def test_a_batch(one_launch):
    a, b, bias = drawn(3, 17, 16), drawn(16, 24), drawn(24)
    if not one_launch:
        a = drawn(2, 3, 17, 16)[:, :2]
    assert_right(a, b, bias)
    matrices = wt.matmul(a, b, epilogue=lambda acc: (acc, acc.max(axis=(-2, -1))))[1]
    exact = (a.astype(np.float64) @ b.astype(np.float64)).max((-2, -1))
    assert matrices.shape == exact.shape
    assert np.abs(matrices - exact).max() < 1e-3


def test_partials_of_accumulator_fragments_are_of_eight_elements():
    a, b = drawn(64, 64), drawn(64, 64).T
    plan = wt.plan(a, b, epilogue=lambda acc: (acc, acc.sum(axis=-1)))
    seen = plan.plan.kernel.view.problem.epilogue
    assert plan.plan.rung.name == "wgmma-final"
    assert (seen.in_quads, seen.block) == (True, 8)


@pytest.mark.parametrize("rung", ["wgmma-store", "wgmma-final"] if ALL else ["wgmma-final"])
def test_partials_are_stored_without_branches(rung):
    a, b, bias = drawn(136, 192), drawn(512, 192).T, drawn(512)
    config = None if rung == "wgmma-store" else SCHEDULES["overlapped"]
    options = {"rung": rung, "config": config, "bias": bias}
    without = wt.plan(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), **options)
    reducing = wt.plan(a, b, epilogue=every_reduction, **options)
    texts = [execute.KERNELS.ptx(execute.sources(each.plan)[0], each.plan.arch).ptx for each in (without, reducing)]
    branches = [len(re.findall(rb"\bbra\b", each)) for each in texts]
    assert len(texts[1]) > 1.2 * len(texts[0])
    assert branches[1] < 1.2 * branches[0]


def test_nan_is_the_largest_and_the_smallest_element_of_its_row():
    a, b = drawn(40, 16), drawn(16, 24)
    a[7, 3] = np.nan
    _, largest, smallest = wt.matmul(a, b, epilogue=lambda acc: (acc, acc.max(axis=-1), acc.min(axis=-1)))
    for found in (largest, smallest):
        assert np.array_equal(np.flatnonzero(np.isnan(found)), [7])


def test_a_reduction_is_of_what_is_rounded_where_the_epilogue_rounds():
    a, b = drawn(16, 16), drawn(16, 24)
    d, largest = wt.matmul(a, b, epilogue=lambda acc: (wt.cast(acc, "float16"), wt.cast(acc, "float16").max(axis=-1)))
    assert np.array_equal(largest, d.astype(np.float32).max(-1))


def test_of_no_elements():
    outputs = wt.matmul(
        drawn(5, 0), drawn(0, 6), epilogue=lambda acc, x: (acc + x, (acc + x).sum(axis=-1), (acc + x).max()), x=2.0
    )
    assert np.array_equal(outputs[1], np.full(5, 12))
    assert outputs[2] == 2
    none = wt.matmul(drawn(0, 4), drawn(4, 6), epilogue=lambda acc: (acc, acc.sum(axis=-2), acc.max(axis=-1)))
    assert np.array_equal(none[1], np.zeros(6))
    assert none[2].shape == (0,)


def test_a_held_plan_and_gates():
    a, b = drawn(33, 32), drawn(32, 48)

    def gated(acc):
        gate, up = wt.halves(acc)
        y = wt.silu(gate) * up
        return y, abs(y).max(axis=-1)

    exact = gated(a.astype(np.float64) @ b.astype(np.float64))[0]
    plan = wt.plan(a, b, epilogue=gated)
    for d, largest in (wt.matmul(a, b, epilogue=gated), plan(a, b)):
        assert d.shape == exact.shape
        assert np.abs(largest - np.abs(exact).max(-1)).max() < 1e-4


def test_the_same_bits_each_time():
    a, b, bias = drawn(70, 36), drawn(137, 36).T, drawn(137)
    once, again = (wt.matmul(a, b, epilogue=every_reduction, bias=bias) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(once, again, strict=True))


@pytest.mark.skipif(not ALL, reason="make test-all")
@pytest.mark.parametrize("seed", range(12))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(each) for each in rng.integers(1, 300, 3))
    a = drawn(m, k) if seed % 2 else drawn(k, m).T
    b = drawn(k, n) if seed % 3 else drawn(n, k).T
    assert_right(a, b, drawn(n))


@pytest.mark.parametrize(
    ("epilogue", "message"),
    [
        (lambda acc: acc.max(axis=-1), "its first output is the result"),
        (lambda acc: acc - acc.max(axis=-1), "a reduction is an output"),
        (lambda acc: (acc, acc.sum(axis=1)), "axis=1: it is -1 for one number for each row"),
        (lambda acc: (acc, (acc > 0).sum()), "a truth value has no sum"),
    ],
)
def test_what_cannot_be_reduced_is_refused(epilogue, message):
    with pytest.raises(wt.EpilogueError, match=re.escape(message)):
        wt.matmul(drawn(8, 16), drawn(16, 12), epilogue=epilogue)


def test_vectors_and_out_are_refused():
    def summed(acc):
        return acc, acc.sum(axis=-1)

    with pytest.raises(wt.EpilogueError, match=re.escape("give a.reshape(1, -1)")):
        wt.matmul(drawn(16), drawn(16, 12), epilogue=summed)
    outputs = np.empty((8, 12), "float16"), np.empty(8, "float32")
    with pytest.raises(wt.EpilogueError, match=re.escape("give the array of the result alone, as in out=d")):
        wt.matmul(drawn(8, 16), drawn(16, 12), epilogue=summed, out=outputs)


def test_linear_reduces_rows_of_any_leading_axes():
    x, w = drawn(2, 3, 4, dtype="float64"), drawn(5, 4, dtype="float64")
    y, total = wt.linear(x, w, epilogue=lambda acc: (acc, acc.sum(axis=-1)))
    np.testing.assert_allclose(total, y.sum(-1), rtol=1e-12)
    with pytest.raises(wt.EpilogueError, match=r"all rows of an x .* write matmul\(x, w.T"):
        wt.linear(x, w, np.zeros(5), epilogue=lambda acc: (acc, acc.sum(axis=-2)))
    assert wt.linear(x[0], w, epilogue=lambda acc: (acc, acc.sum(axis=-2)))[1].shape == (5,)
