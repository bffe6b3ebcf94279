"""Gradients of matmul, linear and grouped_mm: right to every order, and no GEMM for one that nobody asked for."""

import itertools
import sys

import numpy as np
import pytest

import quick_products
import warptile as wt
from warptile.calls.call_options import OPTIONS
from warptile.runtime import torch_calls

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402
from warptile.torch import bound_gradients  # noqa: E402

ops = torch.ops.warptile


@pytest.fixture
def quick(monkeypatch):
    return quick_products.install(monkeypatch)


def drawn(*shape, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


SHAPES = {
    "matrices": ((3, 5), (5, 2), (3, 2)),
    "row": ((3, 5), (5, 2), (2,)),
    "column": ((3, 5), (5, 2), (3, 1)),
    "scalar": ((3, 5), (5, 2), ()),
    "vectors": ((5,), (5,), ()),
    "vector-matrix": ((5,), (5, 2), (2,)),
    "matrix-vector": ((3, 5), (5,), (3,)),
    "batch": ((2, 3, 5), (2, 5, 4), (3, 4)),
    "batch-shared-b": ((2, 3, 5), (5, 4), (2, 1, 4)),
    "batch-shared-a": ((3, 5), (2, 5, 4), (4,)),
    "batch-broadcast": ((2, 1, 3, 5), (4, 5, 2), (1, 3, 2)),
    "batch-vector": ((2, 3, 5), (5,), (3,)),
    "vector-batch": ((5,), (2, 5, 4), (2, 4)),
    "one-row": ((1, 5), (5, 1), (1,)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_gradients_are_those_of_finite_differences(quick, case):
    a, b, c = (drawn(*shape) for shape in SHAPES[case])

    def call(a, b, c):
        return wt.matmul(a, b, c, alpha=1.5, beta=-0.5)

    assert torch.allclose(call(a, b, c), 1.5 * (a @ b) - 0.5 * c)
    assert torch.autograd.gradcheck(call, (a, b, c), fast_mode=True)


@pytest.mark.parametrize("case", ["matrices", "batch-shared-a", "batch-broadcast", "vectors", "matrix-vector"])
def test_gradients_of_gradients(quick, case):
    a, b, c = (drawn(*shape) for shape in SHAPES[case])
    assert torch.autograd.gradgradcheck(lambda *each: wt.matmul(*each, alpha=1.5), (a, b, c), fast_mode=True)


@pytest.mark.parametrize("operator", [True, False])
def test_gradients_of_the_operator_and_of_the_function_are_the_same(quick, operator):
    a, b, c = drawn(3, 5), drawn(5, 2), drawn(2)
    call = ops.matmul if operator else wt.matmul
    d = call(a, b, c, alpha=2, beta=3)
    g = drawn(3, 2, grad=False)
    found = torch.autograd.grad(d, (a, b, c), g)
    expected = torch.autograd.grad(2 * (a @ b) + 3 * c, (a, b, c), g)
    assert all(torch.allclose(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("operator", [True, False])
def test_a_gradient_that_is_not_wanted_costs_no_gemm(quick, wanted, operator):
    a, b, c = (drawn(*shape, grad=grad) for shape, grad in zip(((3, 5), (5, 2), (2,)), wanted, strict=True))
    d = (ops.matmul if operator else wt.matmul)(a, b, c)
    assert d.requires_grad == any(wanted)
    assert quick == [(3, 2, 5)]
    if not any(wanted):
        return
    d.sum().backward()
    expected = ([(3, 5, 2)] if wanted[0] else []) + ([(5, 2, 3)] if wanted[1] else [])
    assert quick[1:] == expected
    assert [each.grad is not None for each in (a, b, c)] == list(wanted)


def test_weights_shared_by_a_batch_have_their_gradient_in_one_gemm(quick):
    a, b = drawn(2, 3, 5), drawn(5, 4)
    wt.matmul(a, b).sum().backward()
    assert quick[1:] == [(6, 5, 4), (5, 4, 6)]
    quick.clear()
    a, b = drawn(3, 5), drawn(2, 5, 4)
    wt.matmul(a, b).sum().backward()
    assert quick[1] == (3, 5, 8), "the sum over the batch is a longer dot product"


@pytest.mark.parametrize("extents", [(0, 5, 2), (3, 0, 2), (3, 5, 0)])
def test_empty_operands_have_empty_or_zero_gradients(quick, extents):
    m, k, n = extents
    a, b, c = drawn(m, k), drawn(k, n), drawn(n)
    found = torch.autograd.grad(wt.matmul(a, b, c).sum(), (a, b, c))
    expected = torch.autograd.grad((a @ b + c).sum(), (a, b, c))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_factors_of_zero(quick):
    a, b, c = drawn(3, 5), drawn(5, 2), drawn(3, 2)
    found = torch.autograd.grad(wt.matmul(a, b, c, alpha=0).sum(), (a, b, c))
    assert [int(each.count_nonzero()) for each in found] == [0, 0, 6]
    grad_c = torch.autograd.grad(wt.matmul(a, b, c, beta=0).sum(), c)[0]
    assert not grad_c.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_have_the_operands_types(quick, dtype):
    a, b = drawn(3, 5, dtype=dtype), drawn(5, 2, dtype=dtype)
    d = wt.matmul(a, b, out_dtype="float32")
    assert d.dtype == torch.float32
    d.square().sum().backward()
    assert a.grad.dtype == b.grad.dtype == dtype
    expected = torch.autograd.grad((a.double() @ b.double()).square().sum(), (a, b))
    for found, want in zip((a.grad, b.grad), expected, strict=True):
        assert torch.allclose(found.double(), want.double(), rtol=2e-2, atol=1e-2)


def test_a_saved_operand_that_was_changed_is_noticed(quick):
    a, b = drawn(3, 5, grad=False), drawn(5, 2)
    for call in (wt.matmul, ops.matmul):
        d = call(a, b)
        a.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            d.sum().backward()


def test_a_write_by_the_operator_is_noticed(quick):
    a, b, out = drawn(3, 5, grad=False), drawn(5, 2, grad=False), drawn(3, 2, grad=False)
    weight = drawn(3, 2)
    d = (weight * out).sum()
    ops.matmul_out(a, b, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        d.backward()


def test_out_records_no_gradient(quick):
    a, b = drawn(3, 5), drawn(5, 2)
    out = torch.empty(3, 2, dtype=torch.float64)
    with pytest.raises(wt.UnsupportedError, match="without out="):
        wt.matmul(a, b, out=out)
    with pytest.raises(wt.UnsupportedError, match="leave out= away"):
        ops.matmul_out(a, b, out=out)
    with torch.no_grad():
        assert wt.matmul(a, b, out=out) is out
    assert torch.allclose(out, a @ b)


def test_what_records_no_gradient_says_what_does(quick):
    a, b = drawn(3, 5), drawn(5, 2)
    with pytest.raises(wt.UnsupportedError, match=r"matmul\(a, b\)"):
        wt.plan(a, b)
    with pytest.raises(wt.UnsupportedError, match="leave config out"):
        wt.matmul(a, b, rung="simt-naive", config={"BM": 8, "BN": 32})
    eight = torch.zeros(3, 16).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(wt.UnsupportedError, match=r"a\.detach\(\)"):
        wt.matmul(eight, torch.zeros(16, 2).to(torch.float8_e4m3fn))
    with pytest.raises(wt.ArgumentTypeError, match="'alpha'"):
        wt.matmul(a, b, alpa=2)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_factor_whose_gradient_would_be_lost_is_refused(quick, name):
    a, b, factor = drawn(5, 7, grad=False), drawn(7, 3, grad=False), torch.tensor(2.0, requires_grad=True)
    with pytest.raises(wt.UnsupportedError, match=rf"{name}: requires a gradient, .*: give {name}.detach\(\)"):
        wt.matmul(a, b, drawn(3, grad=False), **{name: factor})
    with torch.no_grad():
        wt.matmul(a, b, drawn(3, grad=False), **{name: factor})
    wt.matmul(a, b, epilogue=lambda acc, s: acc * s, s=factor).sum().backward()
    assert factor.grad is not None


def test_arrays_of_two_frameworks_are_refused_with_a_sentence(quick):
    weights, array = drawn(5, 2), np.ones((3, 5))
    with pytest.raises(wt.UnsupportedError, match=r"b\.detach\(\)"):
        wt.matmul(array, weights)
    with pytest.raises(wt.WarptileError):
        wt.linear(array, weights.T)
    with pytest.raises(wt.WarptileError):
        wt.linear(weights.T, array)


def test_wrong_shapes_say_so_whether_or_not_gradients_are_recorded(quick):
    for grad in (False, True):
        with pytest.raises(wt.ShapeError, match="last axis of a"):
            wt.matmul(drawn(3, 5, grad=grad), drawn(4, 2))
        with pytest.raises(wt.ShapeError, match="does not broadcast"):
            wt.matmul(drawn(3, 5, grad=grad), drawn(5, 2), drawn(4, 2))
        with pytest.raises(wt.DTypeError, match="one type"):
            wt.matmul(drawn(3, 5, grad=grad), drawn(5, 2, dtype=torch.float32))


def test_no_grad_and_inference_mode_record_nothing(quick):
    a, b = drawn(3, 5), drawn(5, 2)
    with torch.no_grad():
        assert not wt.matmul(a, b).requires_grad
        assert not wt.linear(a, b.T).requires_grad
    with torch.inference_mode():
        assert torch.allclose(wt.matmul(a, b), a @ b)


def test_checkpointing_computes_again(quick):
    a, b = drawn(3, 5), drawn(5, 2)
    d = torch.utils.checkpoint.checkpoint(lambda a: wt.matmul(a, b).sin(), a, use_reentrant=False)
    found = torch.autograd.grad(d.sum(), (a, b))
    expected = torch.autograd.grad((a @ b).sin().sum(), (a, b))
    assert all(torch.allclose(*pair) for pair in zip(found, expected, strict=True))


def test_a_bound_call_is_recorded(quick):
    assert sys.modules[torch_calls.RECORDER] is bound_gradients
    a, b, c = drawn(3, 5), drawn(5, 2), drawn(2)

    class Calls:
        def launched(self, found, at_a, at_b, at_c, at_d, out):
            assert (found, at_d, out) == ("bound", 0, None)
            assert (at_a, at_b, at_c) == tuple(each.data_ptr() for each in (a, b, c))
            assert not torch.is_grad_enabled()
            return (2 * (a @ b) + 3 * c).detach()

    given = {"alpha": 2, "beta": 3, "batch_invariant": False}
    options = tuple(given.get(name) for name in OPTIONS)
    d = bound_gradients.recorded_call(Calls(), "bound", a, b, c, options)
    expected = torch.autograd.grad((2 * (a @ b) + 3 * c).square().sum(), (a, b, c))
    for one, other in zip(torch.autograd.grad(d.square().sum(), (a, b, c)), expected, strict=True):
        assert torch.allclose(one, other)
    scaled = tuple({"alpha": 2, "scale_a": 2.0}.get(name) for name in OPTIONS)
    assert bound_gradients.recorded_call(Calls(), "bound", a, b, c, scaled) is None, "it takes the long way"


# --- linear ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "w"), [((3, 5), (4, 5)), ((5,), (4, 5)), ((2, 3, 5), (4, 5)), ((3, 5), (5,)), ((2, 3, 5), (5,))]
)
def test_gradients_of_linear(quick, x, w):
    arguments = drawn(*x), drawn(*w), drawn(*w[:-1])
    by_torch = arguments[0] @ (arguments[1].mT if len(w) == 2 else arguments[1]) + arguments[2]
    assert torch.allclose(wt.linear(*arguments), by_torch)
    for call in (wt.linear, ops.linear):
        assert torch.autograd.gradcheck(call, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(wt.linear, arguments, fast_mode=True)


def test_linear_computes_wanted_gradients_alone(quick):
    x, w = drawn(2, 3, 5, grad=False), drawn(4, 5)
    wt.linear(x, w, drawn(4)).sum().backward()
    assert quick == [(6, 4, 5), (4, 5, 6)]


# --- grouped_mm ------------------------------------------------------------------------------------------------------

GROUPED = {
    "rows": ((8, 3), (3, 3, 4), [2, 2, 7]),
    "columns": ((2, 5, 3), (3, 6), [2, 6]),
    "k": ((4, 8), (8, 3), [3, 8]),
    "batch": ((2, 4, 3), (2, 3, 5), None),
}


def grouped(a, b, ends):
    """What grouped_mm computes, by torch's matmul."""
    if ends is None:
        return a @ b
    parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if a.dim() == b.dim():
        return torch.stack([a[:, part] @ b[part] for part in parts])
    if b.dim() == 3:
        rest = a.new_zeros(a.shape[0] - ends[-1], b.shape[2])
        return torch.cat([*(a[part] @ b[group] for group, part in enumerate(parts)), rest])
    rest = a.new_zeros(a.shape[1], b.shape[1] - ends[-1])
    return torch.cat([*(a[group] @ b[:, part] for group, part in enumerate(parts)), rest], dim=1)


@pytest.mark.parametrize("case", GROUPED)
def test_grouped_results_and_gradients(quick, case):
    a_shape, b_shape, ends = GROUPED[case]
    a, b = drawn(*a_shape), drawn(*b_shape)
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    assert torch.allclose(ops.grouped_mm(a, b, offs), grouped(a, b, ends))
    assert torch.autograd.gradcheck(lambda a, b: ops.grouped_mm(a, b, offs), (a, b), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda a, b: ops.grouped_mm(a, b, offs), (a, b), fast_mode=True)


@pytest.mark.parametrize("case", ["rows", "columns", "k"])
def test_grouped_results_and_gradients_of_one_launch_each(quick, case):
    a_shape, b_shape, ends = GROUPED[case]
    a, b = (drawn(*shape).detach().bfloat16().requires_grad_() for shape in (a_shape, b_shape))
    call = ops.grouped_mm if case == "columns" else wt.matmul_grouped
    found, expected = call(a, b, torch.tensor(ends)), grouped(a.double(), b.double(), ends)
    seed = torch.randn_like(expected).bfloat16()
    given = found, *torch.autograd.grad(found, (a, b), seed)
    wanted = expected, *torch.autograd.grad(expected, (a, b), seed.double())
    assert len(quick) == 3
    # What is behind the last group holds anything: of the result and of an operand without an axis of groups.
    inside = slice(None, ends[-1])
    kept = {
        "rows": ((inside,), (inside,), ()),
        "columns": ((slice(None), inside), (), (slice(None), inside)),
        "k": ((), (slice(None), inside), (inside,)),
    }[case]
    for each, other, part in zip(given, wanted, kept, strict=True):
        assert torch.allclose(each[part].double(), other[part].double(), rtol=1e-2, atol=5e-2)


def test_matmul_grouped_is_traced_by_dynamo(quick):
    a, b, offsets = drawn(8, 3).detach().half(), drawn(2, 3, 4).detach().half(), torch.tensor([3, 8])
    compiled = torch.compile(lambda *given: wt.matmul_grouped(*given) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, b, offsets), wt.matmul_grouped(a, b, offsets) + 1)


@pytest.mark.parametrize(
    ("ends", "error", "words"),
    [
        ([3, 2], wt.ShapeError, "rise"),
        ([3, 9], wt.ShapeError, "at most 8"),
        ([3], wt.ShapeError, "for 2 groups"),
        ([3.0, 8.0], wt.DTypeError, r"offs\.int\(\)"),
        (None, wt.ShapeError, "the end of each group"),
    ],
)
def test_offsets_that_are_wrong(quick, ends, error, words):
    offs = None if ends is None else torch.tensor(ends)
    with pytest.raises(error, match=words):
        ops.grouped_mm(drawn(8, 3, grad=False), drawn(2, 3, 4, grad=False), offs)


def test_grouped_operands_that_are_wrong(quick):
    a, b = drawn(8, 3, grad=False), drawn(2, 3, 4, grad=False)
    with pytest.raises(wt.UnsupportedError, match="add it to the result"):
        ops.grouped_mm(a, b, torch.tensor([3, 8]), drawn(4, grad=False))
    with pytest.raises(wt.ShapeError, match="must equal"):
        ops.grouped_mm(a.T, b, torch.tensor([3, 8]))
    with pytest.raises(wt.ShapeError, match="no offs"):
        ops.grouped_mm(b, b.mT, torch.tensor([3, 8]))
    with pytest.raises(wt.ShapeError, match="two axes or three"):
        ops.grouped_mm(a[0], b, torch.tensor([3, 8]))
