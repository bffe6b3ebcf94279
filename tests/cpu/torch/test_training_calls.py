"""Training on a GPU whose driver is stubbed: after the first steps every GEMM is a bound call, forward and backward."""

from dataclasses import replace

import pytest

import warptile.api as api
from stubbed_gpu import StubbedGpu
from warptile.arrays import array_view

torch = pytest.importorskip("torch")
import warptile as wt  # noqa: E402
import warptile.torch  # noqa: E402
import warptile.torch.bound_gradients as bound_gradients  # noqa: E402
from warptile import linear_call  # noqa: E402

STREAM = 0x5EED


@pytest.fixture
def gpu(monkeypatch):
    """Tensors in host memory that warptile takes for tensors on the stubbed GPU."""
    made = StubbedGpu().install(monkeypatch)
    made.record_nothing(monkeypatch)
    viewed = array_view._view_torch
    monkeypatch.setattr(array_view, "_view_torch", lambda x, name: replace(viewed(x, name), device=0, stream=STREAM))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(api, "_calls", {})
    return made


@pytest.fixture
def planned(monkeypatch):
    """Shapes of the calls that were not bound."""
    found = []
    real = api._matmul

    def counted(arrays, *arguments, **options):
        found.append([None if each is None else tuple(each.shape) for each in arrays])
        return real(arrays, *arguments, **options)

    monkeypatch.setattr(api, "_matmul", counted)
    return found


@pytest.mark.parametrize("autocast", [True, False])
def test_a_training_step_plans_nothing(gpu, planned, autocast):
    model = torch.nn.Sequential(
        torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 48, bias=False), torch.nn.Linear(48, 33)
    )
    warptile.torch.convert(model)
    x = torch.randn(4, 8, 48, requires_grad=True)
    if not autocast:  # the model itself is of 16 bits
        model, x = model.bfloat16(), x.detach().bfloat16().requires_grad_()
    for step in range(4):
        del planned[:]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = model(x)
        y.float().square().mean().backward()
        assert planned or step > 0, "the first step plans"
        assert not planned or step < 2, planned
    assert gpu.copies == []


# --- the GEMMs of a backward pass that are kept ----------------------------------------------------------------------


def products(launches):
    """Entry and parameters of GEMMs, without D's address, which differs from call to call: the addresses and strides of
    operands are in the tensor maps and the pointers of A and B."""
    return [(each.entry, each.parameters[0][:16], each.grid) for each in launches]


@pytest.fixture
def long_way(monkeypatch):
    """Shapes of the results whose gradients took the long way."""
    found = []
    for kind in (bound_gradients.BoundProduct, bound_gradients.BoundLinear):
        real = kind.long_way

        def counted(setting, a, b, shapes, dtype, grad, wanted, real=real):
            found.append(tuple(grad.shape))
            return real(setting, a, b, shapes, dtype, grad, wanted)

        monkeypatch.setattr(kind, "long_way", staticmethod(counted))
    return found


def operands(m=64, k=48, n=96, *, transposed=False):
    a = torch.randn(k, m).bfloat16().T if transposed else torch.randn(m, k).bfloat16()
    return a.requires_grad_(), torch.randn(k, n).bfloat16().requires_grad_()


@pytest.fixture
def launching(gpu, monkeypatch):
    """The stubbed GPU, recording launches."""
    return StubbedGpu().install(monkeypatch)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("alpha", [1, 0.5])
def test_kept_gemms_launch_what_the_long_way_does(launching, long_way, transposed, alpha):
    a, b = operands(transposed=transposed)
    g = torch.randn(64, 96).bfloat16()
    rounds = []
    for _ in range(5):
        d = wt.matmul(a, b, alpha=alpha)
        before = len(launching.launches)
        torch.autograd.grad(d, (a, b), g)
        rounds.append(products(launching.launches[before:]))
    assert 1 <= len(long_way) <= 3
    assert len(rounds[-1]) == 2
    assert rounds[-1] == rounds[-2] == rounds[1]


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_layer_launches_what_the_long_way_does(launching, long_way, leading, biased):
    x = torch.randn(*leading, 16, 64).bfloat16().requires_grad_()
    w = torch.randn(96, 64).bfloat16().requires_grad_()
    bias = torch.randn(96).bfloat16().requires_grad_() if biased else None
    g = torch.randn(*leading, 16, 96).bfloat16()
    given = (x, w, bias) if biased else (x, w)
    forward, backward = [], []
    for _ in range(5):
        before = len(launching.launches)
        y = wt.linear(x, w, bias)
        between = len(launching.launches)
        gradients = torch.autograd.grad(y, given, g)
        forward.append(products(launching.launches[before:between]))
        backward.append(products(launching.launches[between:]))
        assert y.shape == g.shape
        assert [each.shape for each in gradients] == [each.shape for each in given]
    assert 1 <= len(long_way) <= 3
    assert forward[-1] == forward[-2] == forward[1]
    assert backward[-1] == backward[-2] == backward[1]
    assert len(backward[-1]) == 2


def test_a_linear_layer_whose_rows_lie_apart_is_not_bound(gpu, planned):
    base = torch.randn(4, 16, 64).bfloat16()
    x, w = base.transpose(0, 1), torch.randn(96, 64).bfloat16()  # its rows are one matrix only after a copy
    for _ in range(3):
        assert wt.linear(x, w).shape == (16, 4, 96)
    (calls,) = api._calls.values()
    assert all(len(each.shape) == 2 for each in calls._bound.values())


def test_linear_and_matmul_are_told_apart(launching):
    x, w = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    for _ in range(3):
        wt.linear(x, w)
        of_linear = products(launching.launches[-1:])
        wt.matmul(x, w)
        of_matmul = products(launching.launches[-1:])
    assert of_linear != of_matmul


@pytest.mark.parametrize("frozen", ["a", "b"])
def test_an_operand_without_a_gradient(launching, long_way, frozen):
    a, b = operands()
    (a if frozen == "a" else b).requires_grad_(False)
    g = torch.randn(64, 96).bfloat16()
    for _ in range(4):
        d = wt.matmul(a, b)
        before = len(launching.launches)
        (found,) = torch.autograd.grad(d, (b,) if frozen == "a" else (a,), g)
        assert len(launching.launches) == before + 1
        assert found.shape == (b if frozen == "a" else a).shape
    assert len(long_way) < 4


def test_another_gradient_takes_the_long_way(gpu, long_way):
    a, b = operands()
    usual = torch.randn(64, 96).bfloat16()
    for _ in range(4):
        torch.autograd.grad(wt.matmul(a, b), (a, b), usual)
    memory = torch.randn(64 * 96 + 8).bfloat16()
    others = (
        torch.randn(96, 64).bfloat16().T,  # other strides
        memory[1 : 64 * 96 + 1].view(64, 96),  # other alignment
        torch.randn(1, 1).bfloat16().expand(64, 96),
    )
    for other in others:
        del long_way[:]
        torch.autograd.grad(wt.matmul(a, b), (a, b), other)
        assert long_way == [(64, 96)]


def test_saved_operands_that_come_back_with_other_strides_take_the_long_way(gpu, long_way):
    a, b = operands()
    g = torch.randn(64, 96).bfloat16()
    for _ in range(4):
        torch.autograd.grad(wt.matmul(a, b), (a, b), g)
    del long_way[:]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x.mT.contiguous().mT):
        torch.autograd.grad(wt.matmul(a, b), (a, b), g)
    assert long_way == [(64, 96)]


def test_gradients_of_gradients_are_recorded(gpu, long_way):
    a, b = operands()
    g = torch.randn(64, 96).bfloat16()
    for _ in range(4):
        torch.autograd.grad(wt.matmul(a, b), (a, b), g)
    del long_way[:]
    found = torch.autograd.grad(wt.matmul(a, b), (a, b), g, create_graph=True)
    assert long_way == [(64, 96)]
    assert all(each.grad_fn is not None for each in found)


def test_gemms_are_not_kept_once_calls_were_forgotten(gpu, long_way):
    a, b = operands()
    g = torch.randn(64, 96).bfloat16()
    for _ in range(4):
        d = wt.matmul(a, b)
        torch.autograd.grad(d, (a, b), g)
    d = wt.matmul(a, b)
    del long_way[:]
    (calls,) = {type(each): each for each in api._calls.values()}.values()
    calls.forgotten += 1
    torch.autograd.grad(d, (a, b), g)
    assert long_way == [(64, 96)]


def test_a_wider_result_takes_the_long_way(gpu, long_way):
    a, b = operands()
    for step in range(4):  # the first call is not bound yet
        d = wt.matmul(a, b, out_dtype=torch.float32)
        torch.autograd.grad(d, (a, b), torch.randn(64, 96))
        assert len(long_way) == step


# --- modules with fused activations ----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["MLP", "GatedMLP"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_fused_module_plans_nothing_again(gpu, monkeypatch, module, activation, recorded):
    made = getattr(warptile.torch, module)(48, 96, activation, dtype=torch.bfloat16)
    x = torch.randn(4, 8, 48).bfloat16().requires_grad_(recorded)
    planned = []
    real = api.chosen_kernel
    monkeypatch.setattr(api, "chosen_kernel", lambda *arguments: planned.append(arguments) or real(*arguments))
    for step in range(5):
        del planned[:]
        with torch.set_grad_enabled(recorded):
            y = made(x)
        if recorded:
            y.float().square().mean().backward()
        assert planned or step > 0, "the first step plans"
        assert not planned or step < 3


@pytest.mark.parametrize("leading", [(), (2, 3)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_fused_linear_layer_launches_what_its_gemm_does(launching, monkeypatch, leading, biased, outputs):
    x, w = torch.randn(*leading, 16, 64).bfloat16(), torch.randn(96, 64).bfloat16()
    bias = torch.randn(96).bfloat16() if biased else None
    res = torch.randn(*leading, 16, 96).bfloat16()

    def layer(factor):
        def epilogue(acc, res):
            found = wt.gelu(acc) * factor + res
            return (found, acc) if outputs == 2 else found

        return wt.linear(x, w, bias, epilogue=epilogue, res=res)

    for _ in range(2):
        layer(2.0)
    expected = products(launching.launches[-1:])
    looked, real = [], linear_call.by_rows
    monkeypatch.setattr(linear_call, "by_rows", lambda *arguments: looked.append(arguments) or real(*arguments))
    found = layer(2.0)
    assert looked == [], "the call is bound"
    assert products(launching.launches[-1:]) == expected
    for each in found if outputs == 2 else [found]:
        assert each.shape == res.shape
        assert each.is_contiguous()
    layer(3.0)
    assert len(looked) == 1, "another number is another epilogue"


def test_a_fused_linear_layer_of_other_operands_is_another_call(launching, monkeypatch):
    w, looked, real = torch.randn(96, 64).bfloat16(), [], linear_call.by_rows
    monkeypatch.setattr(linear_call, "by_rows", lambda *arguments: looked.append(arguments) or real(*arguments))
    base = torch.randn(4, 16, 64).bfloat16()
    x, res = torch.randn(2, 16, 64).bfloat16(), torch.randn(2, 16, 96).bfloat16()
    for case in ((x, res), (x, res[:, :, :1]), (x, res.transpose(0, 1).contiguous().transpose(0, 1)),
                 (base[::2], res)):  # fmt: skip
        del looked[:]
        wt.linear(case[0], w, epilogue=lambda acc, res: acc + res, res=case[1])
        assert len(looked) == 1
    del looked[:]
    wt.linear(base.transpose(0, 1), w, epilogue=wt.gelu)
    wt.linear(base.transpose(0, 1), w, epilogue=wt.gelu)
    assert len(looked) == 2, "rows that lie apart are copied every time"


def nodes_behind(y):
    """Names of the nodes of autograd that made a tensor."""
    found, pending = set(), [y.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [each for each, _ in node.next_functions]
    return {type(each).__name__ for each in found}


@pytest.mark.parametrize("module", ["MLP", "GatedMLP"])
def test_modules_that_record_gradients_are_one_operation_with_16_bits_and_layers_otherwise(gpu, planned, module):
    for dtype in (torch.bfloat16, torch.float32):
        made = getattr(warptile.torch, module)(48, 96, "gelu", dtype=dtype)
        x = torch.randn(4, 8, 48, dtype=dtype)
        behind = nodes_behind(made(x))
        assert ("FeedForwardBackward" in behind) == (dtype == torch.bfloat16)
        assert ("GeluBackward0" in behind) == (dtype == torch.float32)
        assert "FusedFunctionBackward" not in behind
    with torch.no_grad():
        assert made(x).grad_fn is None


SHAPES = (
    ((0, 64), (32, 64)), ((2, 0, 64), (32, 64)), ((3, 64), (0, 64)), ((2, 3, 0), (32, 0)), ((64,), (32, 64)),
    ((2, 3, 64), (64,)), ((1, 1, 1), (1, 1)), ((2, 5, 63), (33, 63)),
)  # fmt: skip


@pytest.mark.parametrize(("of_x", "of_w"), SHAPES)
@pytest.mark.parametrize("epilogue", [None, wt.gelu])
@pytest.mark.parametrize("recorded", [False, True])
def test_repeated_linear_layers_have_the_shapes_of_the_first(gpu, of_x, of_w, epilogue, recorded):
    x, w = (torch.randn(*shape).bfloat16().requires_grad_(recorded) for shape in (of_x, of_w))
    bias = torch.randn(of_w[0]).bfloat16() if len(of_w) == 2 else None
    for _ in range(4):
        y = wt.linear(x, w, bias) if epilogue is None else wt.linear(x, w, bias, epilogue=epilogue)
        assert y.shape == (*of_x[:-1], *of_w[:-1])
        if recorded:
            gradients = torch.autograd.grad(y, (x, w), torch.ones_like(y))
            assert [each.shape for each in gradients] == [x.shape, w.shape]
