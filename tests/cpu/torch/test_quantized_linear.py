"""`warptile.torch.QuantizedLinear`: results, gradients of input and bias, state dicts, moving. On the emulator."""

import pytest

import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")
import warptile.torch  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")


def layer(bias=True, **options):
    torch.manual_seed(0)
    return warptile.torch.QuantizedLinear.from_linear(nn.Linear(200, 48, bias=bias), **options)


def by_torch(module, x):
    bias = 0 if module.bias is None else module.bias.double()
    return x.double() @ module.weights.dequantize().double().T + bias


OTHER = {"bits": 8, "group_size": 32, "zero_point": True, "dtype": "float16"}


@pytest.mark.parametrize("options", [{}, OTHER], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_results(bias, options):
    module = layer(bias, **options)
    x = torch.randn(2, 3, 200).to(getattr(torch, module.weights.dtype))
    y = module(x)
    assert y.dtype == x.dtype
    assert y.shape == (2, 3, 48)
    assert torch.allclose(y.double(), by_torch(module, x), rtol=2**-7, atol=2**-7)
    assert repr(module).startswith("QuantizedLinear(in_features=200, out_features=48, ")


def test_gradients_of_input_and_bias():
    made = layer()
    module = warptile.torch.QuantizedLinear(made.weights, nn.Parameter(made.bias.clone()))
    x = torch.randn(5, 200).bfloat16().requires_grad_()
    weighting = torch.randn(5, 48).bfloat16()
    (module(x) * weighting).sum().backward()
    expected = weighting.double() @ module.weights.dequantize().double()
    assert torch.allclose(x.grad.double(), expected, rtol=2**-6, atol=2**-6)
    assert torch.allclose(module.bias.grad.double(), weighting.double().sum(0), rtol=2**-6, atol=2**-6)
    assert [name for name, _ in module.named_parameters()] == ["bias"]
    with torch.no_grad():
        assert not module(x).requires_grad


def test_state_dicts_bring_format_and_weights():
    one, other = layer(), layer()
    other.packed.zero_()
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.weights.dequantize(), one.weights.dequantize())
    assert other.weights.key == one.weights.key


def test_a_moved_module_has_moved_weights():
    module = layer()
    before = module.weights
    assert module.weights is before
    module._apply(torch.clone)  # as to() and cuda() do
    assert module.weights.packed is module.packed
    assert before.packed is not module.packed
    assert torch.equal(module.weights.dequantize(), before.dequantize())


def test_bias_of_another_shape_is_refused():
    with pytest.raises(wt.ShapeError, match="bias"):
        warptile.torch.QuantizedLinear(layer().weights, torch.zeros(3))


def test_a_layer_in_the_place_of_weights_is_refused():
    with pytest.raises(wt.ArgumentTypeError, match=r"weights: got Linear; .* QuantizedLinear.from_linear\(linear\)"):
        warptile.torch.QuantizedLinear(nn.Linear(8, 4))
