"""Epilogues whose gradients are recorded: against torch's own operations."""

import pytest

import warptile as wt

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's forward mode
quick_products = pytest.importorskip("quick_products")


@pytest.fixture(autouse=True)
def made(monkeypatch):
    return quick_products.install(monkeypatch)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def compared(ours, theirs, inputs):
    """Largest differences of results and of gradients."""
    gradients = [torch.randn_like(each) for each in ours]
    found = torch.autograd.grad(ours, inputs, gradients)
    expected = torch.autograd.grad(theirs, inputs, gradients)
    pairs = [*zip(ours, theirs, strict=True), *zip(found, expected, strict=True)]
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


def test_gradients_of_operands_and_of_the_product():
    torch.manual_seed(0)
    a, b, bias, res, column = drawn(5, 7), drawn(7, 9), drawn(9), drawn(5, 9), drawn(5, 1)
    ours = wt.matmul(
        a, b, alpha=0.5, bias=bias, res=res, column=column, s=0.25,
        epilogue=lambda acc, bias, res, column, s: (wt.gelu(acc + bias) * column + res * s, wt.silu(acc)),
    )  # fmt: skip
    acc = 0.5 * (a @ b)
    theirs = functional.gelu(acc + bias) * column + res * 0.25, functional.silu(acc)
    assert compared(ours, theirs, [a, b, bias, res, column]) < 1e-12


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (wt.relu, torch.relu),
        (lambda acc: wt.gelu(acc, "tanh"), lambda acc: functional.gelu(acc, approximate="tanh")),
        (
            lambda acc: wt.where(acc > 0, wt.exp(-acc), wt.tanh(acc)),
            lambda acc: torch.where(acc > 0, (-acc).exp(), acc.tanh()),
        ),
        (lambda acc: wt.clamp(acc, -1, 1) / 3 + wt.sqrt(abs(acc)), lambda acc: acc.clamp(-1, 1) / 3 + acc.abs().sqrt()),
        (lambda acc: wt.log(wt.sigmoid(acc)) * wt.erf(acc), lambda acc: torch.sigmoid(acc).log() * acc.erf()),
    ],
)
def test_gradients_of_functions(function, reference):
    torch.manual_seed(1)
    a, b = drawn(6, 4), drawn(4, 5)
    assert compared((wt.matmul(a, b, epilogue=function),), (reference(a @ b),), [a, b]) < 1e-12


def test_batches_vectors_and_c():
    torch.manual_seed(2)
    a, b, c, x = drawn(3, 5, 7), drawn(7, 9), drawn(9), drawn(3, 1, 9)
    ours = wt.matmul(a, b, c, beta=2, epilogue=lambda acc, x: wt.silu(acc) * x, x=x)
    assert compared((ours,), (functional.silu(a @ b + 2 * c) * x,), [a, b, c, x]) < 1e-12
    v = drawn(7)
    assert compared((wt.matmul(v, b, epilogue=wt.relu),), (torch.relu(v @ b),), [v, b]) < 1e-12


ANY_ORDER = {
    "arithmetic": lambda acc, x: (acc * x + x) / (2 + x * x) - acc,
    "extremes": lambda acc, x: wt.maximum(acc, x) * wt.minimum(acc, 0.3) * acc,
    "choice": lambda acc, x: wt.where((acc > 0) & (x < 0.5), acc * acc, wt.exp(acc) * x),
    "roots": lambda acc, x: abs(acc) * wt.sqrt(1 + x * x) + wt.log(2 + acc * acc),
    "sigmoids": lambda acc, x: wt.tanh(acc * x) + wt.erf(acc) * wt.sigmoid(x) + wt.silu(acc),
    "activations": lambda acc, x: wt.gelu(acc) + wt.gelu(acc * x, "tanh") + wt.relu(acc + x) ** 3,
    "casts": lambda acc, x: (wt.cast(acc * x, "float64") ** 2, wt.cast(acc, "int32")),
    "outputs": lambda acc, x: (wt.silu(acc) * x, acc * x),
    "reductions": lambda acc, x: (acc * x, (acc * x * acc).sum(axis=-1), wt.exp(acc).max(axis=-2, keepdims=True)),
    "extremes of all": lambda acc, x: (acc, (acc * x).min(), x.sum(axis=(-2, -1)), abs(acc * acc).max(axis=(-2, -1))),
    "blocks": lambda acc, x: acc * wt.per_block(x, 2, 4) + wt.exp(acc),
}


@pytest.mark.parametrize("name", ANY_ORDER)
def test_derivatives_of_any_order_and_direction(name):
    torch.manual_seed(7)
    a, b, c, x = drawn(3, 4), drawn(4, 5), drawn(3, 1), drawn(2, 2) if name == "blocks" else drawn(5)

    def call(a, b, c, x):
        found = wt.matmul(a, b, c, alpha=0.5, beta=2, epilogue=ANY_ORDER[name], x=x)
        return found[0] if name == "casts" else found

    assert torch.autograd.gradcheck(call, (a, b, c, x), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (a, b, c, x))


def test_reductions_of_a_batch_and_equal_largest_elements():
    torch.manual_seed(10)
    a, b, x = drawn(2, 3, 4), drawn(4, 5), drawn(5)
    ours = wt.matmul(
        a, b, x=x, epilogue=lambda acc, x: (acc, acc.sum(axis=-2), (acc * x).max(axis=(-2, -1)), wt.relu(acc).min())
    )
    y = a @ b
    theirs = y, y.sum(-2), (y * x).amax((-2, -1)), y.relu().amin()
    assert compared(ours, theirs, [a, b, x]) < 1e-12


@pytest.mark.parametrize("columns", [wt.halves, wt.pairs])
def test_derivatives_of_two_columns_that_make_one(columns):
    torch.manual_seed(11)
    a, b, x = drawn(3, 4), drawn(4, 6), drawn(6)

    def gated(acc, x):
        gate, up = columns(acc + x)
        return wt.silu(gate) * up

    def call(a, b, x):
        return wt.matmul(a, b, epilogue=gated, x=x)

    assert torch.autograd.gradcheck(call, (a, b, x), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (a, b, x))


def test_second_derivatives_on_the_emulator(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    torch.manual_seed(8)
    a, b, x = drawn(2, 3), drawn(3, 2), drawn(2)
    found = []
    for d in (wt.matmul(a, b, epilogue=lambda acc, x: wt.silu(acc) * x, x=x), functional.silu(a @ b) * x):
        (gradient,) = torch.autograd.grad(d.square().sum(), a, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [b, x]))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12)


def test_a_matrix_times_a_vector_with_an_operand():
    torch.manual_seed(9)
    a, v, x = drawn(5, 7), drawn(7), drawn(5)
    ours = wt.matmul(a, v, epilogue=lambda acc, x: wt.silu(acc) * x, x=x)
    assert compared((ours,), (functional.silu(a @ v) * x,), [a, v, x]) < 1e-12
    batch, rows = drawn(2, 5, 7), drawn(2, 5)
    ours = wt.matmul(batch, v, epilogue=lambda acc, x: wt.silu(acc) * x, x=rows)
    assert compared((ours,), (functional.silu(batch @ v) * rows,), [batch, v, rows]) < 1e-12


def test_scales_of_whole_numbers_have_gradients():
    a, b = torch.randint(-9, 9, (5, 7), dtype=torch.int8), torch.randint(-9, 9, (7, 9), dtype=torch.int8)
    scale = drawn(9, dtype=torch.float32)
    ours = wt.matmul(a, b, epilogue=lambda acc, s: acc * s, s=scale)
    theirs = (a.float() @ b.float()) * scale
    assert compared((ours,), (theirs,), [scale]) < 1e-3


def test_dropout_has_the_gradient_of_its_mask():
    torch.manual_seed(3)
    a, b = drawn(40, 8), drawn(8, 24)
    d = wt.matmul(a, b, epilogue=lambda acc, seed: wt.dropout(acc, 0.25, seed), seed=5)
    mask = torch.from_numpy(wt.dropout_mask(5, (40, 24), 0.25)).double()
    assert compared((d,), ((a @ b) * mask / 0.75,), [a, b]) < 1e-12


def test_a_gradient_that_nobody_asked_for_costs_no_gemm(made):
    torch.manual_seed(4)
    a, b = torch.randn(5, 7), drawn(7, 9, dtype=torch.float32)
    wt.matmul(a, b, epilogue=wt.relu).sum().backward()
    assert len(made) == 2, "forward, and the gradient of b"
    with torch.no_grad():
        assert not wt.matmul(a, b, epilogue=wt.relu).requires_grad


def test_linear_with_an_epilogue():
    torch.manual_seed(5)
    x, w, bias, up = drawn(2, 3, 7), drawn(6, 7), drawn(6), drawn(2, 3, 6)
    ours = wt.linear(x, w, bias, epilogue=lambda acc, up: wt.silu(acc) * up, up=up)
    assert compared((ours,), (functional.silu(functional.linear(x, w, bias)) * up,), [x, w, bias, up]) < 1e-12


def test_refused():
    a, b = drawn(5, 7), drawn(7, 9)
    with pytest.raises(wt.UnsupportedError, match="makes its own outputs; leave out= away"):
        wt.matmul(a.to("meta"), b.to("meta"), epilogue=wt.relu, out=torch.empty(5, 9, dtype=torch.float64))
    with pytest.raises(TypeError, match="unexpected keyword argument 'bias'"):
        wt.matmul(a, b, epilogue=wt.relu, bias=b)


@pytest.mark.parametrize("name", ["MLP", "GatedMLP"])
def test_modules_fuse_their_activation(name, made):
    import warptile.torch

    torch.manual_seed(6)
    module = getattr(warptile.torch, name)(8, 12, dtype=torch.float64)
    x = drawn(2, 3, 8)
    fused = module(x)
    gemms = len(made)
    handle = (module.up if name == "MLP" else module.gate).register_forward_hook(lambda *_: None)
    plain = module(x)
    handle.remove()
    assert gemms == (2 if name == "MLP" else 3)
    assert compared((fused,), (plain,), [x, *module.parameters()]) < 1e-12


class Scaled(torch.nn.Linear):
    """A linear layer with something more."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_layer_of_another_class_is_called(recorded):
    import warptile.torch

    module = warptile.torch.MLP(6, 8, dtype=torch.float64)
    plain = module.up
    x = torch.randn(3, 6, dtype=torch.float64)
    module.up = Scaled(6, 8, dtype=torch.float64)
    module.up.load_state_dict(plain.state_dict())
    with torch.set_grad_enabled(recorded):
        expected = module.down(torch.nn.functional.gelu(2 * plain(x)))
        assert torch.allclose(module(x), expected)


# --- the derivative in one kernel ------------------------------------------------------------------------------------


def test_the_derivative_is_one_kernel_unless_it_is_differentiated(monkeypatch):
    from warptile.torch import fused_gradients

    stepwise = []
    real = fused_gradients.pulled_back
    monkeypatch.setattr(fused_gradients, "pulled_back", lambda *said: stepwise.append(said) or real(*said))
    a, b, bias, up = drawn(5, 7), drawn(7, 9), drawn(9), drawn(5, 9)

    def layer():
        return wt.matmul(a, b, bias=bias, up=up, epilogue=lambda acc, bias, up: wt.gelu(acc + bias) * up)

    inputs, g = [a, b, bias, up], torch.randn(5, 9, dtype=torch.float64)
    found = torch.autograd.grad(layer(), inputs, g)
    assert stepwise == []
    again = torch.autograd.grad(layer(), inputs, g, create_graph=True)
    assert len(stepwise) == 1
    for one, other in zip(found, again, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(functional.gelu(a @ b + bias) * up, inputs, g)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_one_kernel_gives_what_operations_give(dtype, monkeypatch):
    from warptile.torch import fused_gradients

    torch.manual_seed(7)
    a, b, bias, column = (drawn(*shape, dtype=dtype) for shape in ((17, 8), (8, 21), (21,), (17, 1)))
    scale = torch.tensor(0.5, dtype=dtype, requires_grad=True)

    def layer(acc, bias, column, scale):
        y = wt.silu(acc * column + bias)
        return y * scale, (y * y).sum(axis=-1)

    inputs = [a, b, bias, column, scale]
    results = []
    for one_kernel in (True, False):
        if not one_kernel:
            monkeypatch.setattr(fused_gradients, "in_one_kernel", lambda *_: None)
        y, sums = wt.matmul(a, b, bias=bias, column=column, scale=scale, epilogue=layer)
        given = [torch.linspace(-1, 1, each.numel()).reshape(each.shape).to(each.dtype) for each in (y, sums)]
        results.append(torch.autograd.grad((y, sums), inputs, given))
    for one, other in zip(*results, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        off = (one - other).float().abs().max()
        assert float(off) <= 8 * torch.finfo(dtype).eps * float(other.float().abs().max())


@pytest.mark.parametrize("shape", [(0, 6), (3, 6), (2, 0, 6), (1, 6)])
def test_gated_blocks_of_few_or_no_rows_have_gradients(shape):
    import warptile.torch

    module = warptile.torch.GatedMLP(6, 8, "silu", bias=True, dtype=torch.float64)
    x = drawn(*shape)
    expected = module.down(functional.silu(module.gate(x)) * module.up(x))
    gradients = torch.autograd.grad(module(x).sum(), [x, *module.parameters()])
    theirs = torch.autograd.grad(expected.sum(), [x, *module.parameters()])
    for one, other in zip(gradients, theirs, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("name", ["kept_accumulator", "gradient_of_output_0"])
def test_operands_may_have_names_of_the_derivative(name):
    a, b, factor = drawn(5, 7), drawn(7, 9), drawn(5, 9)
    source = f"lambda acc, {name}: wt.gelu(acc) * {name}"
    y = wt.matmul(a, b, epilogue=eval(source, {"wt": wt}), **{name: factor})
    assert compared((y,), (functional.gelu(a @ b) * factor,), [a, b, factor]) < 1e-12


def test_outputs_of_8_bit_floats_have_gradients():
    a, b = drawn(5, 16, dtype=torch.bfloat16), drawn(16, 8, dtype=torch.bfloat16)
    y = wt.matmul(a, b, epilogue=lambda acc: wt.cast(acc, "float8_e4m3"))
    of_a, of_b = torch.autograd.grad(y.float().sum(), (a, b))
    ones = torch.ones(5, 8, dtype=torch.bfloat16)
    assert torch.allclose(of_a, ones @ b.mT, rtol=0.02, atol=0.02)
    assert torch.allclose(of_b, a.mT @ ones, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 6), (8, 0, 6), (5, 8, 0), (1, 1, 1)])
def test_one_kernel_on_few_or_no_elements(m, n, k):
    a, b, bias, scale = drawn(m, k), drawn(k, n), drawn(n), drawn(1)
    y = wt.matmul(a, b, bias=bias, scale=scale, epilogue=lambda acc, bias, scale: wt.gelu(acc + bias) * scale)
    inputs = [a, b, bias, scale]
    found = torch.autograd.grad(y.sum(), inputs)
    expected = torch.autograd.grad((functional.gelu(a @ b + bias) * scale).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
