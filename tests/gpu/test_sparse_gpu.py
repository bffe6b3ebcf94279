"""2:4 weights on a GPU: every type against float64, the same bits as the emulator, torch's tensors there and back."""

import numpy as np
import pytest

import warptile as wt
from warptile.arrays.operands import arrange
from warptile.dtypes import DTYPES
from warptile.planning.plan import make_plan
from warptile.rungs.mma_sparse import INSTRUCTIONS
from warptile.runtime.execute import GpuBackend
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference

SIZES = [(1, 1, 4), (193, 161, 100), (331, 257, 516), (512, 384, 1024)]


def drawn(*shape, dtype, seed=0):
    return random_operand(shape, DTYPES[dtype], np.random.default_rng(seed))


def pair(m, n, k, dtype, by_columns=False):
    """Weights, a dense operand of the same type, and what says how float32 is multiplied."""
    stored = "float32" if dtype == "tfloat32" else dtype
    x = drawn(n, k, dtype=stored, seed=1).T if by_columns else drawn(k, n, dtype=stored, seed=1)
    return wt.sparsify(drawn(m, k, dtype=stored)), x, {"precision": "tf32"} if dtype == "tfloat32" else {}


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="torch is not installed")
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return found


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("dtype", INSTRUCTIONS)
@pytest.mark.parametrize("size", SIZES)
def test_every_type_and_major(dtype, by_columns, size):
    w, x, options = pair(*size, dtype, by_columns)
    d = wt.matmul(w, x, backend="gpu", **options)
    expected = reference(arrange(w, x, **options).problem, w.to_dense(), x)
    assert is_correct(error_ratio(d, expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "tfloat32", "int8", "float8_e4m3"])
def test_the_emulator_has_the_same_bits(dtype):
    w, x, options = pair(75, 70, 132, dtype)
    native = GpuBackend().info.arch
    if native != "sm_90a":
        pytest.skip(f"the emulator's sums are those of sm_90a; this GPU is {native}")
    there = wt.matmul(w, x, backend="gpu", rung="mma-sparse", **options)
    here = wt.matmul(w, x, backend="emulator", rung="mma-sparse", **options)
    assert there.tobytes() == here.tobytes()


@pytest.mark.parametrize("dtype", INSTRUCTIONS)
def test_large_tiles_with_c(dtype):
    w, x, options = pair(700, 520, 1156, dtype, by_columns=True)
    problem = arrange(w, x, **options).problem
    c = drawn(700, 520, dtype=problem.d.dtype.name, seed=2)
    d = wt.matmul(w, x, c, alpha=2, beta=-1, backend="gpu", **options)
    expected = reference(problem, w.to_dense(), x, c, alpha=2, beta=-1)
    assert is_correct(error_ratio(d, expected))
    plan = make_plan(problem, rung="mma-sparse")
    assert plan.rung.sparse


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_weights_that_live_on_the_gpu(torch, dtype):
    generator = torch.Generator(device="cuda").manual_seed(1)
    scale = 30 if dtype == "int8" else 1
    values = torch.randn((256, 512), generator=generator, device="cuda") * scale
    x = torch.randn((64, 512), generator=generator, device="cuda") * scale
    w, x = values.to(getattr(torch, dtype)), x.to(getattr(torch, dtype))
    there, here = wt.sparsify(w), wt.sparsify(w.cpu())
    assert torch.equal(there.metadata.cpu(), here.metadata)
    assert torch.equal(there.packed().cpu(), here.packed())
    assert torch.equal(there.to_dense().cpu(), here.to_dense())
    options = {"precision": "tf32"} if dtype == "float32" else {}
    y = wt.matmul(there, x.T, **options).T
    assert y.device == x.device
    exact = x.double() @ there.to_dense().double().T
    assert (y.double() - exact).norm() <= 0.01 * exact.norm()


@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor:UserWarning")
@pytest.mark.parametrize("kind", ["SparseSemiStructuredTensorCUTLASS", "SparseSemiStructuredTensorCUSPARSELT"])
def test_torch_weights_multiply(torch, kind):
    dense = wt.sparsify(torch.randn((256, 512), device="cuda").half()).to_dense()
    try:
        tensor = getattr(torch.sparse, kind).from_dense(dense)
    except RuntimeError as error:
        pytest.skip(f"this torch has no {kind}: {error}")
    w = wt.SparseMatrix.from_torch(tensor)
    assert torch.equal(w.to_dense(), dense)
    x = torch.randn((512, 128), device="cuda").half()
    # Beside the dense product: torch multiplies its CUTLASS form on compute capability 8.x only.
    assert torch.allclose(wt.matmul(w, x), torch.mm(dense, x), rtol=1e-2, atol=1e-1)
