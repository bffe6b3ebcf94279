"""Calls with an epilogue whose gradients are recorded, repeated on a GPU whose driver is stubbed and whose launches are
computed by NumPy: bound calls give what torch's own operations give, and are never some that were bound for others."""

import gc
import struct
import time
import weakref
from dataclasses import replace

import pytest

import warptile as wt
from stubbed_gpu import StubbedGpu
from warptile import api
from warptile.arrays import array_view
from warptile.arrays.array_view import row_major
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT
from warptile.runtime import bound_call, call_cache, fused_calls, torch_calls
from warptile.runtime.execute import EmulatorBackend, GpuBackend

torch = pytest.importorskip("torch")
import warptile.torch  # noqa: E402
from warptile.torch import bound_epilogues  # noqa: E402

quick_products = pytest.importorskip("quick_products")
functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's forward mode

STREAM = 0x5EED
M, N, K = 32, 48, 24


def install(monkeypatch):
    """Tensors in host memory that warptile takes for tensors on the stubbed GPU."""
    made = StubbedGpu().install(monkeypatch)
    viewed = array_view._view_torch
    monkeypatch.setattr(array_view, "_view_torch", lambda x, name: replace(viewed(x, name), device=0, stream=STREAM))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(api, "_calls", {})
    return made


class Launches:
    """What a GPU would do, by NumPy.

    Attributes:
        planned: kinds of the calls that took the long way.
        bound: launches of bound calls.
    """

    def __init__(self, monkeypatch):
        quick_products.install(monkeypatch)
        monkeypatch.delenv("WARPTILE_BACKEND")
        self.planned, self.bound, self._run = [], 0, EmulatorBackend.run
        monkeypatch.setattr(GpuBackend, "run", self._long_way)
        nothing = (lambda stream, *addresses: 0), RuntimeError
        monkeypatch.setattr(bound_call, "launches_of", lambda *said, **more: nothing)
        monkeypatch.setattr(fused_calls, "_launches", lambda *said: (*nothing, formats(said[4], said[6])))
        monkeypatch.setattr(call_cache, "bind", self._bind)
        monkeypatch.setattr(torch_calls, "bind_fused", self._bind_fused)

    def _long_way(self, plan, operands, indices, alpha, beta, numbers=None):
        self.planned.append("epilogue" if plan.problem.epilogue is not None else "plain")
        self._compute(plan, operands, alpha, beta, numbers)

    def _compute(self, plan, operands, alpha, beta, numbers):
        hosted = {name: replace(each, device=None) for name, each in operands.items()}
        self._run(None, plan, hosted, (), alpha, beta, numbers)

    def _bind(self, product, chosen, backend, alpha, beta, **options):
        found = bound_call.bind(product, chosen, backend, alpha, beta, **options)
        return found and replace(found, launch=self._launch(product, chosen, alpha, beta, (found.shape,), ()))

    def _bind_fused(self, product, addresses, chosen, backend, alpha, beta, **options):
        found = fused_calls.bind_fused(product, addresses, chosen, backend, alpha, beta, **options)
        if found is None:
            return None
        numbers = [name for name in addresses if name not in dict(product.epilogue.tensors)]
        launch = self._launch(product, chosen, alpha, beta, found.shapes, numbers, found.formats, addresses)
        return replace(found, launch=launch)

    def _launch(self, product, chosen, alpha, beta, shapes, numbers, forms=(), addresses=()):
        epilogue = product.epilogue
        named = {} if epilogue is None else dict(epilogue.tensors)
        tensors = [name for name in addresses if name in named]
        types = [product.problem.d.dtype, *(() if epilogue is None else epilogue.types)]

        def launch(stream, a, b, c, d, *others):
            assert stream == STREAM
            self.bound += 1
            views = {}
            if product.reads_operands:
                views = {"A": replace(product.a, pointer=a), "B": replace(product.b, pointer=b)}
            if product.c is not None:
                views["C"] = replace(product.c, pointer=c)
            at_tensors, words = others[: len(tensors)], others[len(tensors) : len(tensors) + len(numbers)]
            for name, at in zip(tensors, at_tensors, strict=True):
                views[f"{OPERAND} {name}"] = replace(named[name], pointer=at)
            at_outputs = [d, *others[len(tensors) + len(numbers) :]]
            for place, (at, shape, dtype) in enumerate(zip(at_outputs, shapes, types, strict=True)):
                made = array_view.ArrayView("out", None, "torch", at, shape, row_major(shape), dtype)
                views[f"{OUTPUT} {place}" if place else "D"] = made
            values = [
                struct.unpack(form, word.to_bytes(8, "little"))[0] for form, word in zip(forms, words, strict=True)
            ]
            self._compute(chosen, views, alpha, beta, dict(zip(numbers, values, strict=True)))
            return 0

        return launch


def formats(product, order):
    """How numbers of an epilogue are written: seeds as whole numbers."""
    seeds = product.problem.epilogue.program.seeds
    return tuple("<Q" if name in seeds else "<d" for name in order if name in product.epilogue.numbers)


@pytest.fixture
def launches(monkeypatch):
    install(monkeypatch)
    return Launches(monkeypatch)


@pytest.fixture
def stepwise(monkeypatch):
    """Backward passes that were not bound."""
    found, real = [], bound_epilogues.BoundEpilogue._by_the_long_way
    monkeypatch.setattr(
        bound_epilogues.BoundEpilogue, "_by_the_long_way", lambda *said: found.append(said[1]) or real(*said)
    )
    return found


def drawn(*shape, dtype=torch.float64, grad=True):
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def close(ours, theirs, tolerance=1e-12):
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def tuple_of(found):
    return found if isinstance(found, tuple) else (found,)


def of_layer(x, w, bias, up):
    return wt.linear(x, w, bias, epilogue=lambda acc, up: wt.silu(acc) * up, up=up)


CASES = {
    "activation": (
        lambda a, b: wt.matmul(a, b, epilogue=wt.gelu), lambda a, b: functional.gelu(a @ b), [(M, K), (K, N)],
    ),
    "bias and residual": (
        lambda a, b, bias, res: wt.matmul(
            a, b, epilogue=lambda acc, bias, res: wt.gelu(acc + bias) + res, bias=bias, res=res
        ),
        lambda a, b, bias, res: functional.gelu(a @ b + bias) + res,
        [(M, K), (K, N), (N,), (M, N)],
    ),
    "alpha, c and beta": (
        lambda a, b, c: wt.matmul(a, b, c, alpha=0.5, beta=2, epilogue=wt.silu),
        lambda a, b, c: functional.silu(0.5 * (a @ b) + 2 * c), [(M, K), (K, N), (M, N)],
    ),
    "columns, rows and a scalar": (
        lambda a, b, column, row, scale: wt.matmul(
            a, b, column=column, row=row, scale=scale,
            epilogue=lambda acc, column, row, scale: wt.tanh(acc * column) * row + wt.exp(scale * acc * 0.1),
        ),
        lambda a, b, column, row, scale: torch.tanh(a @ b * column) * row + torch.exp(scale * (a @ b) * 0.1),
        [(M, K), (K, N), (M, 1), (1, N), ()],
    ),
    "two outputs": (
        lambda a, b, x: wt.matmul(a, b, epilogue=lambda acc, x: (wt.silu(acc) * x, acc + x), x=x),
        lambda a, b, x: (functional.silu(a @ b) * x, a @ b + x), [(M, K), (K, N), (M, N)],
    ),
    "a reduction": (
        lambda a, b, x: wt.matmul(a, b, epilogue=lambda acc, x: (acc * x, (acc * acc).sum(axis=-1)), x=x),
        lambda a, b, x: (a @ b * x, (a @ b).square().sum(-1)), [(M, K), (K, N), (N,)],
    ),
    "a residual alone": (
        lambda a, b, res: wt.matmul(a, b, epilogue=lambda acc, res: acc + res, res=res), lambda a, b, res: a @ b + res,
        [(M, K), (K, N), (M, N)],
    ),
    "a residual and a number": (
        lambda a, b, res: wt.matmul(a, b, epilogue=lambda acc, res: acc * 2 - res, res=res),
        lambda a, b, res: a @ b * 2 - res, [(M, K), (K, N), (M, N)],
    ),
    "a layer, its bias and a residual": (
        lambda x, w, bias, res: wt.linear(x, w, bias, epilogue=lambda acc, res: acc + res, res=res),
        lambda x, w, bias, res: functional.linear(x, w, bias) + res,
        [(2, M // 2, K), (N, K), (N,), (2, M // 2, N)],
    ),
    "layer": (
        lambda x, w: wt.linear(x, w, epilogue=wt.gelu), lambda x, w: functional.gelu(x @ w.T), [(2, M // 2, K), (N, K)],
    ),
    "gated layer": (
        of_layer, lambda x, w, bias, up: functional.silu(functional.linear(x, w, bias)) * up,
        [(2, M // 2, K), (N, K), (N,), (2, M // 2, N)],
    ),
    "gated layer of one matrix": (
        of_layer, lambda x, w, bias, up: functional.silu(functional.linear(x, w, bias)) * up,
        [(M, K), (N, K), (N,), (M, N)],
    ),
    "a layer with an operand for all rows": (
        of_layer, lambda x, w, bias, up: functional.silu(functional.linear(x, w, bias)) * up,
        [(2, 2, M // 4, K), (N, K), (N,), (N,)],
    ),
    "a layer with two outputs": (
        lambda x, w, up: wt.linear(x, w, epilogue=lambda acc, up: (wt.relu(acc) * up, acc), up=up),
        lambda x, w, up: (torch.relu(x @ w.T) * up, x @ w.T), [(2, M // 2, K), (N, K), (2, M // 2, N)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_repeated_calls_give_what_torch_gives(launches, stepwise, name):
    torch.manual_seed(0)
    ours, theirs, shapes = CASES[name]
    for step in range(4):
        del stepwise[:], launches.planned[:]
        given = [drawn(*shape) for shape in shapes]
        found, expected = tuple_of(ours(*given)), tuple_of(theirs(*given))
        close(found, expected)
        gradients = [torch.randn_like(each) for each in expected]
        close(torch.autograd.grad(found, given, gradients), torch.autograd.grad(expected, given, gradients))
        assert launches.planned == [] or step < 2
        assert stepwise == [] or step < 3
    assert launches.planned == []
    assert launches.bound > 0


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_gradients_of_bound_calls(launches, name):
    torch.manual_seed(1)
    ours, theirs, shapes = CASES[name]
    for _ in range(3):
        given = [drawn(*shape) for shape in shapes]
        found = []
        for call in (ours, theirs):
            outputs = tuple_of(call(*given))
            first = torch.autograd.grad(sum(each.square().sum() for each in outputs), given, create_graph=True)
            found.append((*first, *torch.autograd.grad(sum(each.square().sum() for each in first), given)))
        close(*found, tolerance=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_any_of_the_gradients_may_be_wanted(launches, name):
    torch.manual_seed(2)
    ours, theirs, shapes = CASES[name]
    given = [drawn(*shape) for shape in shapes]
    gradients = [torch.randn_like(each) for each in tuple_of(theirs(*given))]
    for _ in range(3):
        for wanted in (*([each] for each in given), given[::2], given):
            found, expected = tuple_of(ours(*given)), tuple_of(theirs(*given))
            close(torch.autograd.grad(found, wanted, gradients), torch.autograd.grad(expected, wanted, gradients))


@pytest.mark.parametrize("name", CASES)
def test_operands_without_a_gradient_are_another_call(launches, name):
    torch.manual_seed(3)
    ours, theirs, shapes = CASES[name]
    for frozen in (*range(len(shapes)), None):
        for _ in range(3):
            given = [drawn(*shape, grad=place != frozen) for place, shape in enumerate(shapes)]
            wanted = [each for each in given if each.requires_grad]
            found, expected = tuple_of(ours(*given)), tuple_of(theirs(*given))
            gradients = [torch.randn_like(each) for each in expected]
            close(torch.autograd.grad(found, wanted, gradients), torch.autograd.grad(expected, wanted, gradients))
    with torch.no_grad():
        assert not any(each.requires_grad for each in tuple_of(ours(*given)))


def displaced(tensor):
    """The same one element further on in memory."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    return memory[1:].view(tensor.shape).copy_(tensor.detach()).requires_grad_()


def transposed(tensor):
    """The same with its last axes in the other order in memory, or a gap between elements."""
    if tensor.dim() < 2:
        return tensor.detach().repeat_interleave(2)[::2].requires_grad_() if tensor.dim() else tensor
    return tensor.detach().mT.contiguous().mT.requires_grad_()


def spread(tensor):
    """The same with gaps between rows."""
    if tensor.dim() < 2:
        return tensor
    return torch.cat([tensor.detach()] * 2, -2).narrow(-2, 0, tensor.shape[-2]).requires_grad_()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("changed", [displaced, transposed, spread, lambda tensor: drawn(*tensor.shape)])
def test_operands_and_gradients_of_other_layouts_give_what_torch_gives(launches, name, changed):
    torch.manual_seed(4)
    ours, theirs, shapes = CASES[name]
    usual = [drawn(*shape) for shape in shapes]
    for place in (*range(len(shapes)), None):
        for step in range(4):
            given = list(usual)
            if place is not None and step:
                given[place] = changed(usual[place])
            found, expected = tuple_of(ours(*given)), tuple_of(theirs(*given))
            close(found, expected)
            gradients = [torch.randn_like(each) for each in expected]
            if place is None and step:
                gradients = [changed(each).detach() for each in gradients]
            close(torch.autograd.grad(found, given, gradients), torch.autograd.grad(expected, given, gradients))


@pytest.mark.parametrize("name", ["bias and residual", "gated layer"])
def test_other_shapes_and_types_are_other_calls(launches, name):
    torch.manual_seed(5)
    ours, theirs, shapes = CASES[name]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        for rows in (1, 2, 1):
            for _ in range(3):
                longer = [
                    (*shape[:-2], rows * shape[-2], shape[-1]) if {M, M // 2} & set(shape[:-1]) else shape
                    for shape in shapes
                ]
                given = [drawn(*shape, dtype=dtype) for shape in longer]
                found, expected = ours(*given), theirs(*given)
                gradient = torch.randn_like(expected)
                close(
                    torch.autograd.grad(found, given, gradient), torch.autograd.grad(expected, given, gradient),
                    tolerance=tolerance,
                )  # fmt: skip


def test_numbers_are_those_of_each_call(launches, stepwise):
    torch.manual_seed(6)
    a, b, x = drawn(M, K), drawn(K, N), drawn(N)
    given, pending = [a, b, x], []
    for factor in (0.5, 2.0, 3.0, -1.0):
        y = wt.matmul(a, b, epilogue=lambda acc, s, x: wt.silu(acc * s) * x, s=factor, x=x)
        pending.append((y, functional.silu(a @ b * factor) * x))
    g = torch.randn(M, N, dtype=torch.float64)
    for ours, theirs in pending[::-1]:
        close([ours], [theirs])
        close(torch.autograd.grad(ours, given, g), torch.autograd.grad(theirs, given, g))
    assert len(stepwise) < 3


def test_what_an_epilogue_reads_from_around_it_is_looked_at(launches):
    torch.manual_seed(7)
    a, b = drawn(M, K), drawn(K, N)
    g = torch.randn(M, N, dtype=torch.float64)
    for factor in (0.5, 2.0, 2, -2, 0.5):
        for function, theirs in ((wt.silu, functional.silu), (wt.relu, torch.relu)):
            for _ in range(3):
                ours = wt.matmul(a, b, epilogue=lambda acc, f=function, factor=factor: f(acc) * factor)
                expected = theirs(a @ b) * factor
                close([ours], [expected])
                close(torch.autograd.grad(ours, [a, b], g), torch.autograd.grad(expected, [a, b], g))


def test_one_tensor_in_two_places_is_no_binding_for_two_tensors(launches):
    torch.manual_seed(8)
    x, y, z = (drawn(M, M) for _ in range(3))
    g = torch.randn(M, M, dtype=torch.float64)
    for given in ((x, x, x, x), (x, y, z, z), (x, y, y, z), (y, x, z, x), (x, x, y, z), (x, y, y + z, z)):
        for _ in range(3):
            a, b, p, q = given
            ours = wt.matmul(a, b, epilogue=lambda acc, p, q: wt.silu(acc) * p + acc * q, p=p, q=q)
            theirs = functional.silu(a @ b) * p + a @ b * q
            wanted = list({id(each): each for each in given}.values())
            close(torch.autograd.grad(ours, wanted, g), torch.autograd.grad(theirs, wanted, g))


def test_a_gradient_that_is_an_operand_is_no_binding_for_others(launches):
    torch.manual_seed(9)
    a, b, x = drawn(M, K), drawn(K, N), drawn(M, N)
    for gradient in (x.detach(), x.detach(), x.detach(), torch.randn(M, N, dtype=torch.float64)):
        ours = wt.matmul(a, b, epilogue=lambda acc, x: wt.silu(acc) * x, x=x)
        theirs = functional.silu(a @ b) * x
        close(torch.autograd.grad(ours, [a, b, x], gradient), torch.autograd.grad(theirs, [a, b, x], gradient))


def test_saved_tensors_may_be_packed_and_changed_ones_are_noticed(launches, stepwise):
    torch.manual_seed(10)
    a, b = drawn(M, K), drawn(K, N)
    g = torch.randn(M, N, dtype=torch.float64)

    def call():
        return wt.matmul(a, b, epilogue=wt.gelu)

    for _ in range(3):
        expected = torch.autograd.grad(call(), [a, b], g)
    del stepwise[:]
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each.mT.contiguous().mT):
        close(torch.autograd.grad(call(), [a, b], g), expected)
    assert len(stepwise) == 1
    y = call()
    with torch.no_grad():
        a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, [a, b], g)


def test_bound_calls_that_were_forgotten_are_planned_again(launches, stepwise):
    torch.manual_seed(11)
    a, b = drawn(M, K), drawn(K, N)
    g = torch.randn(M, N, dtype=torch.float64)
    for _ in range(3):
        y = wt.matmul(a, b, epilogue=wt.gelu)
        torch.autograd.grad(y, [a, b], g, retain_graph=True)
    del stepwise[:]
    api._calls[torch.Tensor].forgotten += 1
    torch.autograd.grad(y, [a, b], g)
    assert len(stepwise) == 1
    api._calls.clear()
    del launches.planned[:]
    wt.matmul(a, b, epilogue=wt.gelu)
    assert launches.planned == ["epilogue"]


def test_transforms_modes_and_autocast_see_calls_that_were_bound(launches, monkeypatch):
    from torch.utils._python_dispatch import TorchDispatchMode

    a, b = drawn(M, K, dtype=torch.float32), drawn(K, N, dtype=torch.float32)

    def call(a, b):
        return wt.matmul(a, b, epilogue=wt.gelu)

    for _ in range(3):
        torch.autograd.grad(call(a, b).sum(), [a, b])
    seen = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, kinds, given=(), options=None):
            seen.append(str(function))
            return function(*given, **(options or {}))

    with Counting():
        call(a, b)
    assert "warptile.fused_matmul.default" in seen
    of_call, operator = [], bound_epilogues._record
    monkeypatch.setattr(bound_epilogues, "_record", lambda *said: of_call.append(said) or operator(*said))
    with torch.autograd.forward_ad.dual_level():
        call(torch.autograd.forward_ad.make_dual(a, torch.ones_like(a)), b)
    torch.func.grad(lambda a: call(a, b).sum())(a)
    torch.vmap(call, in_dims=(0, None))(torch.stack([a, a]), b)
    assert of_call == []
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    api._calls[torch.Tensor]._autocasts = lambda kind: True
    monkeypatch.setattr(api, "fused_in_torch", lambda *said: "seen")
    assert call(a, b) == "seen"


def test_bound_calls_keep_no_tensors(monkeypatch):
    install(monkeypatch)
    a, b, x = drawn(M, K), drawn(K, N), drawn(M, N)
    kept = []
    for _ in range(3):
        y = wt.matmul(a, b, epilogue=lambda acc, x: wt.gelu(acc) * x, x=x)
        y.sum().backward()
        kept += [weakref.ref(y)]
    kept += [weakref.ref(each) for each in (a, b, x)]
    del a, b, x, y
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)


def test_the_first_gradient_may_be_of_the_accumulators_alone(launches):
    torch.manual_seed(12)
    a, b = drawn(M, K), drawn(K, N)
    for _ in range(3):
        y, square = wt.matmul(a, b, epilogue=lambda acc: (acc, acc * acc))
        found = torch.autograd.grad(square.sum(), [a, b], retain_graph=True)
        close(found, torch.autograd.grad((a @ b).square().sum(), [a, b]))
        close(torch.autograd.grad(y.sum(), [a, b]), torch.autograd.grad((a @ b).sum(), [a, b]))


@pytest.mark.parametrize("name", ["a residual alone", "a layer, its bias and a residual"])
def test_a_residual_needs_no_kernel_of_its_own(launches, name):
    torch.manual_seed(13)
    ours, _, shapes = CASES[name]
    given = [drawn(*shape) for shape in shapes]
    for _ in range(4):
        y = ours(*given)
        launches.bound, launches.planned = 0, []
        gradient = torch.randn_like(y)
        *_, of_residual = torch.autograd.grad(y, given, gradient)
        assert of_residual.data_ptr() == gradient.data_ptr()
        assert launches.bound + len(launches.planned) == 2, "the GEMMs"


# --- host time -------------------------------------------------------------------------------------------------------


def work():
    """Work of plain Python in the order of a call: attributes, a tuple, a dictionary."""
    known = {}
    for number in range(100):
        said = tuple(str(number + place) for place in range(10))
        known[said] = known.get(said, 0) + len(said)
    return known


def of_plain(a, b, bias, res, x, up):
    return lambda: wt.matmul(a, b)


def of_activation(a, b, bias, res, x, up):
    return lambda: wt.matmul(a, b, epilogue=wt.gelu)


def of_residual(a, b, bias, res, x, up):
    return lambda: wt.matmul(
        a, b, epilogue=lambda acc, bias, res: wt.gelu(acc + bias) + res, bias=bias, res=res
    )  # fmt: skip


def of_number(a, b, bias, res, x, up):
    return lambda: wt.matmul(a, b, epilogue=lambda acc, factor: wt.silu(acc) * factor, factor=0.5)


def of_gated_layer(a, b, bias, res, x, up):
    return lambda: wt.linear(x, b, bias, epilogue=lambda acc, up: wt.silu(acc) * up, up=up)


def cpu_seconds(call, number):
    started = time.thread_time()
    for _ in range(number):
        call()
    return (time.thread_time() - started) / number


@pytest.mark.parametrize(
    ("case", "most_forward", "most_both"),
    [
        (of_plain, 0.12, 0.42), (of_activation, 0.19, 0.6), (of_residual, 0.23, 0.8), (of_number, 0.32, 0.85),
        (of_gated_layer, 0.24, 0.84),
    ],
)  # fmt: skip
def test_recorded_calls_cost_little_python(monkeypatch, case, most_forward, most_both):
    """As a share of `work`, in the same run: nothing is traced or planned again, forward or backward."""
    install(monkeypatch).record_nothing(monkeypatch)
    square, rows = (16, 16), (2, 8, 16)
    given = [drawn(*shape, dtype=torch.bfloat16) for shape in (square, square, (16,), square, rows, rows)]
    forward = case(*given)
    run = torch.autograd.Variable._execution_engine.run_backward  # torch.autograd.grad takes as long as a node

    gradient = torch.ones_like(forward())

    def both():
        run((forward(),), (gradient,), False, False, inputs_of(case, given), True, accumulate_grad=False)

    for _ in range(5):
        both()
    gc.disable()
    try:
        rounds = [(cpu_seconds(forward, 50), cpu_seconds(both, 50), cpu_seconds(work, 4)) for _ in range(40)]
    finally:
        gc.enable()
    of_forward, of_both, unit = map(min, zip(*rounds, strict=True))
    assert of_forward <= most_forward * unit, f"{of_forward / unit:.3f} of a unit of work"
    assert of_both <= most_both * unit, f"{of_both / unit:.3f} of a unit of work"


def inputs_of(case, given):
    """The tensors that a case reads."""
    a, b, bias, res, x, up = given
    return {of_residual: (a, b, bias, res), of_gated_layer: (x, b, bias, up)}.get(case, (a, b))
