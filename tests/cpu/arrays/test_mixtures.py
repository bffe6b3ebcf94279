"""What a call with arrays of two frameworks is told, without the frameworks. That the advice runs is tested with them,
in tests/cpu/conformance/."""

import ml_dtypes  # noqa: F401  (its names are types of NumPy)
import numpy as np
import pytest

import warptile as wt
from warptile.arrays.array_view import ArrayView
from warptile.arrays.mixtures import refuse_mixture
from warptile.dtypes import DTYPES


def array(framework, name, dtype="float32", device=None):
    return ArrayView(name, None, framework, 0, (4, 4), (4, 1), DTYPES[dtype], device)


@pytest.mark.parametrize(
    ("first", "other", "advice"),
    [
        ("numpy", "torch", "b.numpy()"),
        ("numpy", "jax", "numpy.asarray(b)"),
        ("numpy", "cupy", "b.get()"),
        ("torch", "numpy", "torch.from_numpy(b)"),
        ("torch", "jax", "torch.from_dlpack(b)"),
        ("torch", "cupy", "torch.from_dlpack(b)"),
        ("cupy", "torch", "cupy.from_dlpack(b)"),
        ("cupy", "jax", "cupy.from_dlpack(b)"),
        ("jax", "numpy", "jax.numpy.asarray(b)"),
        ("jax", "torch", "jax.dlpack.from_dlpack(b)"),
        ("jax", "cupy", "jax.dlpack.from_dlpack(b)"),
    ],
)
def test_every_pair_is_told_a_conversion(first, other, advice):
    with pytest.raises(wt.LayoutError) as refused:
        refuse_mixture(array(first, "a"), array(other, "b"))
    assert str(refused.value).endswith(f"; both must be of one framework, such as {advice}")


@pytest.mark.parametrize(
    ("first", "dtype", "advice"),
    [
        ("numpy", "bfloat16", "b.view(torch.int16).numpy().view('bfloat16')"),
        ("numpy", "float8_e4m3", "b.view(torch.int8).numpy().view('float8_e4m3fn')"),
        ("torch", "bfloat16", "torch.from_numpy(b.view('int16')).view(torch.bfloat16)"),
    ],
)
def test_types_that_one_of_them_lacks_go_as_integers(first, dtype, advice):
    other = "torch" if first == "numpy" else "numpy"
    with pytest.raises(wt.LayoutError) as refused:
        refuse_mixture(array(first, "a", dtype), array(other, "b", dtype))
    assert str(refused.value).endswith(f"such as {advice}")


@pytest.mark.parametrize("framework", ["numpy", "torch", "cupy", "jax", "xla", "cuda"])
def test_one_framework_and_arrays_of_the_interface_alone_go_together(framework):
    refuse_mixture(array(framework, "a"), array(framework, "b"))
    refuse_mixture(array(framework, "a"), array("cuda", "b"))
    refuse_mixture(array("cuda", "a"), array(framework, "out"))


def test_beside_packed_weights_the_other_array_is_told_a_conversion():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, w = torch.ones(4, 64), np.ones((8, 64), np.float32)
    for weights, dtype in ((wt.quantize(w, group_size=64), torch.bfloat16), (wt.split(w.T), torch.float32)):
        a = x.to(dtype)
        with pytest.raises(wt.LayoutError, match=r"^b is a NumPy .* a is a torch tensor; .* such as a") as refused:
            wt.matmul(a, weights, backend="emulator")
        converted = eval(str(refused.value).rpartition("such as ")[2], {"a": a, "torch": torch})
        assert wt.matmul(converted, weights, backend="emulator").shape == (4, 8)
