"""cuBLASLt through its bindings computes our product, in every combination of types that has a baseline."""

import numpy as np
import pytest

from warptile.bench.baselines.cublaslt import TYPES, WORKSPACE_BYTES
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import to_problem
from warptile.errors import UnsupportedError
from warptile.runtime.device_product import DeviceProduct

pytestmark = pytest.mark.gpu
M, N, K = 192, 320, 256


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("nvmath", reason="nvmath-python is not installed")
    from warptile.bench.baselines.cublaslt import CublasLt
    from warptile.gpu import driver

    driver.enter()
    with CublasLt() as made:
        yield made


@pytest.mark.parametrize("a_major", ["row", "col"])
@pytest.mark.parametrize("b_major", ["row", "col"])
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_every_algorithm_computes_the_product(library, types, b_major, a_major):
    from warptile.gpu import driver

    key = ProblemKey(M, N, K, *types, b_major, a_major)
    along_k = (a_major, b_major) == ("row", "col")
    if types[0].startswith("float8") and not along_k:
        with pytest.raises(UnsupportedError):
            library.product(key)
        return
    try:
        product = library.product(key)
    except UnsupportedError:
        if types[0] == "int8" and not along_k:
            pytest.skip("the library does not multiply int8 that lies so")
        raise
    problem = to_problem(key)
    operands = DeviceProduct(problem, sets=1)
    workspace = driver.Allocation(WORKSPACE_BYTES)
    expected = operands.reference()
    at = operands.pointers(0)
    result = driver.Allocation(M * N * problem.d.dtype.bits // 8)
    names = set()
    for index in range(len(product)):
        result.fill(0xFF)
        product.launch(index, at["A"], at["B"], result.address, workspace.address, 0)
        from warptile.arrays.array_view import numpy_dtype
        from warptile.verify.reference import error_ratio, is_correct

        d = result.to_host(np.empty((M, N), numpy_dtype(problem.d.dtype)))
        if types[0].startswith("float8"):
            # Its sums keep 13 fraction bits, fewer than float32's bound allows: held by their norm.
            error = np.linalg.norm(d.astype(np.float64) - expected.d)
            assert error <= 2**-7 * np.linalg.norm(expected.d), product.name(index)
        else:
            # Split-K adds partial sums in the accumulator's type once more: twice the bound of one sum.
            assert is_correct(error_ratio(d, expected) / 2), product.name(index)
        names.add(product.name(index))
    assert len(names) == len(product)
    assert library.version.startswith("cublasLt ")
    product.close()
    operands.close()


def test_a_batch_is_one_product(library):
    from warptile.arrays.array_view import numpy_dtype
    from warptile.gpu import driver
    from warptile.verify.reference import error_ratio, is_correct

    key = ProblemKey(M, N, K, "bfloat16", "float32", "bfloat16", "col", batch=3)
    product, operands = library.product(key), DeviceProduct(to_problem(key), sets=1)
    workspace, at = driver.Allocation(WORKSPACE_BYTES), operands.pointers(0)
    product.launch(0, at["A"], at["B"], at["D"], workspace.address, 0)
    d = np.empty((3, M, N), numpy_dtype(operands.problem.d.dtype))
    operands._d[0].to_host(d.reshape(-1).view(np.uint8), operands._d_begin)
    assert is_correct(error_ratio(d, operands.reference(products_per_rounding=8)))
    product.close()
    operands.close()
