"""`warptile.split` of tensors: the bits of NumPy's, gradients that are refused, moving and saving. On the emulator."""

import numpy as np
import pytest

import warptile as wt

torch = pytest.importorskip("torch", reason="torch is not installed")

SPLIT = {"rung": "wgmma-split", "backend": "emulator"}


def operands():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(50, 70, generator=generator), torch.randn(70, 40, generator=generator)
    b[3, 7], b[5, 9], a[2, 2] = 1e25, float("inf"), float("nan")
    return a, b


def bits(tensor):
    return tensor.view(torch.int32)


def test_slices_and_results():
    a, b = operands()
    made = wt.split(b)
    assert made.dtype == torch.float32
    assert made.shape == (70, 40)
    assert made.unsplit_lines() == 2
    assert np.array_equal(made.packed.numpy(), wt.split(b.numpy()).packed)
    assert torch.equal(made.matrix, b)
    expected = wt.matmul(a, b, **SPLIT)
    for left, right in ((a, made), (wt.split(a, axis=1), b), (wt.split(a, axis=1), made)):
        assert torch.equal(bits(wt.matmul(left, right, **SPLIT)), bits(expected))
    assert torch.equal(bits(wt.linear(a, made.T, backend="emulator")), bits(wt.matmul(a, made, backend="emulator")))


def test_tensors_of_every_kind():
    _, b = operands()
    negated = torch.complex(b, b).conj().imag
    assert negated.is_neg()
    assert torch.equal(wt.split(negated).matrix, -b)
    strided = torch.randn(140, 80)[::2, ::2]
    assert torch.equal(wt.split(strided).matrix, strided)
    with torch.no_grad():
        assert wt.split(torch.nn.Parameter(b)).unsplit_lines() == 2
    with pytest.raises(wt.UnsupportedError, match="detach"):
        wt.split(torch.nn.Parameter(b))


def test_gradients_are_refused_rather_than_lost():
    a, b = operands()
    made, bias, wanted = wt.split(b), torch.randn(40, requires_grad=True), a.clone().requires_grad_()
    for call in (
        lambda: wt.matmul(wanted, made, **SPLIT),
        lambda: wt.matmul(wanted, made, epilogue=wt.relu, **SPLIT),
        lambda: wt.matmul(a, made, epilogue=lambda acc, s: acc + s, s=bias, **SPLIT),
        lambda: wt.matmul(a, made, bias, **SPLIT),
        lambda: wt.matmul(wt.split(a, axis=1), b.clone().requires_grad_(), **SPLIT),
        lambda: wt.linear(wanted, made.T),
    ):
        with pytest.raises(wt.UnsupportedError, match="requires a gradient, which is not recorded for split matrices"):
            call()
    with torch.no_grad():
        assert torch.equal(bits(wt.matmul(wanted, made, **SPLIT)), bits(wt.matmul(a, b, **SPLIT)))


def test_quantized_weights_refuse_gradients_of_epilogues_too():
    x, w = torch.randn(3, 128, dtype=torch.bfloat16, requires_grad=True), wt.quantize(torch.randn(16, 128))
    with pytest.raises(wt.UnsupportedError, match="not recorded for quantized weights"):
        wt.matmul(x, w, epilogue=wt.relu, backend="emulator")


def test_moving_saving_and_mixing(tmp_path):
    a, b = operands()
    made = wt.split(b)
    torch.save(made.state(), tmp_path / "weights.pt")
    loaded = wt.SplitMatrix(**torch.load(tmp_path / "weights.pt")).to("cpu")
    assert torch.equal(loaded.packed, made.packed)
    with pytest.raises(wt.LayoutError, match="NumPy array"):
        wt.matmul(a.numpy(), made)
