"""Epilogues whose gradients are recorded: against torch's own operations."""

import pytest

import warptile as wt

torch = pytest.importorskip("torch")
functional = torch.nn.functional
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
        wt.matmul(a, b, epilogue=wt.relu, out=torch.empty(5, 9, dtype=torch.float64))
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
