"""Feed-forward blocks recorded as one operation: against the same block of torch's layers."""

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

import warptile.torch  # noqa: E402
from warptile.torch import feed_forward  # noqa: E402

functional = torch.nn.functional
quick_products = pytest.importorskip("quick_products")

FUNCTIONS = {
    "gelu": functional.gelu, "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"), "relu": torch.relu,
    "silu": functional.silu,
}  # fmt: skip
KINDS = ("MLP", "GatedMLP")


@pytest.fixture(autouse=True)
def made(monkeypatch):
    return quick_products.install(monkeypatch)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def parameters(gated, biased, features=6, hidden=8, dtype=torch.float64):
    """Weights and biases of gate, up and down."""
    found = []
    for rows, columns, there in ((hidden, features, gated), (hidden, features, True), (features, hidden, True)):
        found += [drawn(rows, columns, dtype=dtype) if there else None]
        found += [drawn(rows, dtype=dtype) if there and biased else None]
    return found


def by_layers(name, x, gate, gate_bias, up, up_bias, down, down_bias):
    above = functional.linear(x, up, up_bias)
    hidden = FUNCTIONS[name](above if gate is None else functional.linear(x, gate, gate_bias))
    return functional.linear(hidden if gate is None else hidden * above, down, down_bias)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gradients(name, gated, biased):
    torch.manual_seed(0)
    x, given = drawn(2, 5, 6), parameters(gated, biased)
    inputs = [each for each in (x, *given) if each is not None]
    y, expected = feed_forward._record(name, x, *given), by_layers(name, x, *given)
    assert torch.allclose(y, expected, rtol=0, atol=1e-12)
    gradient = torch.randn_like(y)
    found = torch.autograd.grad(y, inputs, gradient)
    exact = torch.autograd.grad(expected, inputs, gradient)
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["gelu", "silu"])
@pytest.mark.parametrize("gated", [False, True])
def test_second_derivatives(name, gated):
    torch.manual_seed(1)
    x, given = drawn(4, 6), parameters(gated, biased=True)
    inputs = [each for each in (x, *given) if each is not None]
    second = []
    for block in (feed_forward._record, by_layers):
        first = torch.autograd.grad(block(name, x, *given).square().sum(), inputs, create_graph=True)
        second.append(torch.autograd.grad(sum(each.square().sum() for each in first), inputs))
    assert all(torch.allclose(*pair, rtol=1e-9, atol=1e-9) for pair in zip(*second, strict=True))


@pytest.mark.parametrize("wanted", ["x", "up", "down", "down bias", "gate"])
def test_only_what_is_wanted(wanted, made):
    """No GEMM is made for a gradient that nobody wants."""
    torch.manual_seed(2)
    x, given = drawn(4, 6), parameters(gated=True, biased=True)
    names = dict(zip(feed_forward._INPUTS, (x, *given), strict=True))
    for name, each in names.items():
        each.requires_grad_(name == wanted)
    y = feed_forward._record("silu", x, *given)
    before = len(made)
    (found,) = torch.autograd.grad(y.sum(), [names[wanted]])
    gemms = {"x": 3, "up": 2, "gate": 2, "down": 1, "down bias": 0}
    assert len(made) - before == gemms[wanted]
    (exact,) = torch.autograd.grad(by_layers("silu", x, *given).sum(), [names[wanted]])
    assert torch.allclose(found, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 4, 16), (16,), (0, 16), (2, 0, 16), (1, 16)], ids=str)
def test_modules_of_16_bits(kind, shape):
    torch.manual_seed(3)
    module = getattr(warptile.torch, kind)(16, 24, "gelu_tanh", bias=True, dtype=torch.bfloat16)
    x = torch.randn(*shape, dtype=torch.bfloat16).requires_grad_()
    y = module(x)
    assert type(y.grad_fn).__name__ == "FeedForwardBackward"
    assert y.shape == x.shape
    assert y.dtype == torch.bfloat16
    wide = [each.detach().double().requires_grad_() for each in (x, *module.parameters())]
    gate = wide[1:3] if kind == "GatedMLP" else [None, None]
    expected = by_layers("gelu_tanh", wide[0], *gate, *wide[-4:])
    y.float().square().sum().backward()
    expected.square().sum().backward()
    for found, exact in zip((x, *module.parameters()), wide, strict=True):
        assert found.grad.shape == exact.grad.shape
        assert (found.grad - exact.grad).norm() <= 0.03 * exact.grad.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_an_expanded_gradient_and_frozen_layers(kind):
    torch.manual_seed(4)
    module = getattr(warptile.torch, kind)(16, 24, dtype=torch.bfloat16)
    module.down.requires_grad_(requires_grad=False)
    module(torch.randn(5, 16).bfloat16()).sum().backward()
    assert module.down.weight.grad is None
    assert module.up.weight.grad is not None


def node(y):
    return type(y.grad_fn).__name__


@pytest.mark.parametrize("kind", KINDS)
def test_when_a_block_is_recorded_as_layers(kind):
    """What looks at layers, or at their operations, sees them."""
    module = getattr(warptile.torch, kind)(16, 24, dtype=torch.bfloat16)
    x = torch.randn(5, 16).bfloat16()
    assert node(module(x)) == "FeedForwardBackward"
    handle = module.down.register_forward_hook(lambda *_: None)
    assert node(module(x)) != "FeedForwardBackward"
    handle.remove()
    with torch.no_grad():
        assert module(x).grad_fn is None
    with torch.autocast("cpu", dtype=torch.float16):
        assert node(module(x)) == "FeedForwardBackward"  # 16-bit values stay what they are
    wide = getattr(warptile.torch, kind)(16, 24)
    assert node(wide(x.float())) != "FeedForwardBackward"
    stacked = torch.func.vmap(module)(x[None])
    assert torch.allclose(stacked[0].float(), module(x).float(), atol=0.02)
    derivative = torch.func.grad(lambda one: module(one).float().sum())(x)
    assert derivative.shape == x.shape


of_torchs_compiler = pytest.mark.filterwarnings("ignore")


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_autocast_of_float32_parameters(kind, compiled, inside):
    """A block is cast once, and its gradients reach parameters and input in float32; also of a backward pass under
    autocast."""
    torch.manual_seed(5)
    torch._dynamo.reset()
    module = getattr(warptile.torch, kind)(16, 24, "gelu_tanh", bias=True)
    x = torch.randn(3, 4, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module)(x)
        if inside:
            y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    if not compiled:
        assert node(y) == "FeedForwardBackward"
    if not inside:
        y.float().square().sum().backward()
    wide = [each.detach().double().requires_grad_() for each in (x, *module.parameters())]
    gate = wide[1:3] if kind == "GatedMLP" else [None, None]
    by_layers("gelu_tanh", wide[0], *gate, *wide[-4:]).square().sum().backward()
    for found, exact in zip((x, *module.parameters()), wide, strict=True):
        assert found.grad.dtype == torch.float32
        assert (found.grad - exact.grad).norm() <= 0.03 * exact.grad.norm()


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_step_has_the_derivative_in_a_gemm(kind, made):
    """Forward and backward are GEMMs alone: two or three, and five or eight."""
    torch._dynamo.reset()
    module = getattr(warptile.torch, kind)(16, 24, "gelu", dtype=torch.bfloat16)
    x = torch.randn(5, 16, dtype=torch.bfloat16, requires_grad=True)
    graphs = []

    def keep(graph, _inputs):
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    y = torch.compile(module, fullgraph=True, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))(x)
    y.float().sum().backward()
    ours = [[each for each in graph if getattr(each, "namespace", "") == "warptile"] for graph in graphs]
    fused = torch.ops.warptile.fused_matmul.default
    gated = kind == "GatedMLP"
    assert [len(each) for each in ours] == ([3, 6] if gated else [2, 4])
    assert [each.count(fused) for each in ours] == [1, 1]
    assert not any("gelu" in str(each) or "silu" in str(each) for graph in graphs for each in graph)


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frozen", ["nothing", "x", "up", "down", "gate", "all but x"])
def test_a_compiled_block_has_the_gradients_that_are_wanted(kind, frozen):
    torch.manual_seed(6)
    torch._dynamo.reset()
    module = getattr(warptile.torch, kind)(16, 24, "silu", bias=True, dtype=torch.bfloat16)
    x = torch.randn(5, 16, dtype=torch.bfloat16, requires_grad=frozen != "x")
    for name, each in module.named_parameters():
        each.requires_grad_(frozen != "all but x" and not name.startswith(frozen))
    inputs = [each for each in (x, *module.parameters()) if each.requires_grad]
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, exact = (torch.autograd.grad(call(x).float().square().sum(), inputs) for call in (compiled, module))
    for one, other in zip(found, exact, strict=True):
        assert torch.equal(one, other)


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_transforms_inside_of_a_compiled_program(kind, backend):
    torch.manual_seed(7)
    torch._dynamo.reset()
    module = getattr(warptile.torch, kind)(16, 24, dtype=torch.bfloat16)
    x = torch.randn(3, 4, 16).bfloat16()

    def gradient(x):
        return torch.func.grad(lambda each: module(each).float().square().sum())(x)

    for call in (gradient, torch.vmap(module), torch.vmap(gradient)):
        expected = call(x)
        found = torch.compile(lambda x, call=call: call(x), backend=backend)(x)
        assert torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.02)


@of_torchs_compiler
def test_a_compiled_program_inside_of_transforms():
    torch.manual_seed(8)
    torch._dynamo.reset()
    module = warptile.torch.MLP(16, 24, dtype=torch.bfloat16)
    x = torch.randn(3, 4, 16).bfloat16()
    compiled = torch.compile(module, backend="aot_eager")
    assert torch.allclose(compiled(x).float(), module(x).float(), atol=0.02)
    assert torch.allclose(torch.vmap(compiled)(x).float(), module(x).float(), atol=0.02)
    found = torch.func.grad(lambda each: compiled(each).float().sum())(x)
    assert torch.allclose(found.float(), torch.func.grad(lambda each: module(each).float().sum())(x).float(), atol=0.02)


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_block_keeps_nothing_for_gradients(kind, strict):
    module = getattr(warptile.torch, kind)(16, 24, dtype=torch.bfloat16)
    x = torch.randn(5, 16).bfloat16()
    exported = torch.export.export(module, (x,), strict=strict)
    (fused,) = (node for node in exported.graph.nodes if str(node.target) == "warptile.fused_matmul.default")
    assert len(fused.meta["val"]) == 1
    assert torch.equal(exported.module()(x), module(x).detach())


@of_torchs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_shapes_may_change_in_a_compiled_block(kind, activation):
    torch._dynamo.reset()
    module = getattr(warptile.torch, kind)(16, 24, activation, dtype=torch.bfloat16)
    compiled = torch.compile(module, dynamic=True, fullgraph=True, backend="aot_eager")
    for rows in (3, 5, 9):
        x = torch.randn(rows, 16, dtype=torch.bfloat16, requires_grad=True)
        found, exact = (torch.autograd.grad(call(x).float().square().sum(), x)[0] for call in (compiled, module))
        assert torch.equal(found, exact)
