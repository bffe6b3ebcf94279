"""Operands that are no arrays: their operator names the call that multiplies them."""

import numpy as np
import pytest

import warptile as wt
from warptile.errors import ArgumentTypeError, DTypeError

MATRIX = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float16)
OPERANDS = (
    (wt.quantize(MATRIX, group_size=32), "warptile.matmul(x, weights), which is x @ weights.dequantize().T"),
    (wt.sparsify(MATRIX), "warptile.matmul(sparse, b)"),
    (wt.split(MATRIX.astype(np.float32)), "warptile.matmul(a, split)"),
)


@pytest.mark.parametrize(("operand", "call"), OPERANDS, ids=["quantized", "sparse", "split"])
def test_the_operator_names_the_call(operand, call):
    for product in (lambda: MATRIX @ operand, lambda: operand @ MATRIX, lambda: operand @ operand):
        with pytest.raises(ArgumentTypeError) as refused:
            product()
        assert str(refused.value).startswith(f"{type(operand).__name__} has no operator @; write {call}")


def test_the_calls_that_are_named_run():
    quantized, sparse, split = (operand for operand, _ in OPERANDS)
    x, wide = MATRIX[:3], MATRIX.astype(np.float32)
    close = {"rtol": 0.02, "atol": 0.02}
    np.testing.assert_allclose(wt.matmul(x, quantized), x @ quantized.dequantize().T, **close)
    np.testing.assert_allclose(wt.matmul(sparse, MATRIX), sparse.to_dense() @ MATRIX, **close)
    np.testing.assert_allclose(wt.matmul(wide, split), wide @ wide, **close)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_tensors_of_torch_have_numbers_elsewhere():
    torch = pytest.importorskip("torch")
    tensor = torch.quantize_per_tensor(torch.ones(8, 8), 0.1, 0, torch.qint8)
    with pytest.raises(DTypeError, match=r"quantized tensors: b\.dequantize\(\) has the numbers"):
        wt.matmul(torch.ones(8, 8), tensor)
    assert (wt.matmul(torch.ones(8, 8), tensor.dequantize()) == 8).all()
